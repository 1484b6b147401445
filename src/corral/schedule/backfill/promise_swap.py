"""Exchange of promises between equal requests: the gang that was promised a start first
also starts first (0050).

A start found for one request suits any equal request. Other jobs therefore see no
difference, and no equal request starts later than promised.
"""

from collections.abc import Iterable, Set

from corral.schedule.placement.availability import SAME_SECONDS, Promise
from corral.schedule.waiting import Waiting


def is_alike(one: Waiting, other: Waiting, shunned: Set[str]) -> bool:
    """Return whether the gangs have equal requests: each could take exactly what is
    promised to the other, for as long and at the same charge. `shunned` holds the names
    from which some job must be kept apart."""
    return _class_of(one, shunned) == _class_of(other, shunned)


def _class_of(gang: Waiting, shunned: Set[str]) -> tuple[object, ...]:
    return (
        gang.needs,
        gang.holds_seconds,
        (gang.queue, gang.user, gang.priority, gang.preemptible, gang.whole_gpus),
        None if gang.array_limit is None else gang.array,
        gang.kin if gang.kin in shunned else "",
    )


def told_after(
    promises: Iterable[tuple[Waiting, Promise]],
    gang: Waiting,
    before: Promise,
    shunned: Set[str],
) -> list[tuple[Waiting, Promise]]:
    """Return the equal requests behind this gang, with their promises, that start no
    later than now promised if they get the gang's promise `before` for their own."""
    return [
        (other_gang, promise)
        for other_gang, promise in sorted(promises, key=lambda one: one[1].since)
        if before.since < promise.since
        and gang.order < other_gang.order
        and before.start < promise.start + SAME_SECONDS
        and promise.seats
        and is_alike(other_gang, gang, shunned)
    ]


def told_before(
    promises: Iterable[tuple[Waiting, Promise]],
    gang: Waiting,
    since: float,
    *,
    start: float,
    latest: float,
    shunned: Set[str],
) -> list[tuple[Waiting, Promise]]:
    """Return the chain of gangs with their promises along which a new start is passed
    on. `gang` has found a start at `start`. The first gang of the result takes that
    start, and each other gang takes the promise of the gang before it. `gang` itself,
    which was promised a start by `latest` at the time `since`, takes the promise of the
    last gang. Every gang in the result would start later without the exchange."""
    told_promises = []
    for other_gang, promise in sorted(promises, key=lambda one: one[1].since):
        is_first = promise.since < since and other_gang.order < gang.order
        gains = start + SAME_SECONDS < promise.start < latest + SAME_SECONDS
        if is_first and gains and promise.seats and is_alike(other_gang, gang, shunned):
            told_promises.append((other_gang, promise))
            start = promise.start
    return told_promises
