"""Exchange of promises between equal requests: the earliest promise starts first
(0050).

A start found for one request suits any equal request. Other jobs therefore see no
difference, and no equal request starts later than promised.
"""

from collections.abc import Iterable, Set

from corral.schedule.placement.availability import SAME_SECONDS, Promise
from corral.schedule.waiting import Waiting


def is_alike(one: Waiting, other: Waiting, shunned: Set[str]) -> bool:
    """Whether each could take just what is promised to the other, for as long, and be
    charged the same for it. `shunned`: names that some job wants to be apart from."""
    return _class_of(one, shunned) == _class_of(other, shunned)


def _class_of(gang: Waiting, shunned: Set[str]) -> tuple[object, ...]:
    return (
        gang.needs,
        gang.holds_seconds,
        (gang.queue, gang.user, gang.priority, gang.preemptible, gang.whole_gpus),
        None if gang.array_limit is None else gang.array,
        gang.kin if gang.kin in shunned else "",
    )


def told_before(
    promises: Iterable[tuple[Waiting, Promise]],
    gang: Waiting,
    since: float,
    *,
    start: float,
    latest: float,
    shunned: Set[str],
) -> list[tuple[Waiting, Promise]]:
    """Return the gangs to which a start moves on when the gang has found something from
    `start` on: the first takes it, each other what the one before it had, and the gang,
    which has a promise since then and by `latest`, what the last of them had. Each
    would start later without the exchange."""
    told_promises = []
    for other_gang, promise in sorted(promises, key=lambda one: one[1].since):
        is_first = promise.since < since and other_gang.order < gang.order
        gains = start + SAME_SECONDS < promise.start < latest + SAME_SECONDS
        if is_first and gains and promise.seats and is_alike(other_gang, gang, shunned):
            told_promises.append((other_gang, promise))
            start = promise.start
    return told_promises
