"""Failure of a gang, and the rank that caused it, by the last lines and the ends of its
ranks.

A rank that lost its peers reports those peers. Another rank is to blame if it has a
cause of its own, if waiting ranks named it, or if it was still silent when they gave
up.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from corral.domain.diagnosis import RankEnd
from corral.domain.failure_advice import NextStep
from corral.domain.failure_class import Failure, FailureKind
from corral.health.patterns import CUT_OFF, READER_GONE
from corral.health.peer_evidence import (
    awaited,
    behind,
    inner_end,
    rank_of_mpi,
    stopped_by_launcher,
    streams,
    without_streams,
)
from corral.health.rank_failure import KILL, RankReading, last_error, read, signal_of

SOONEST_KILL_SECONDS: Final = 0.5  # after the first failure; graces are longer
EARLIER_SECONDS: Final = 0.001
TAIL_CHARACTERS: Final = 16_384  # of a rank's log; agents send a quarter of that
QUOTE_CHARACTERS: Final = 700  # two lines of a log, and how they belong together
_TIMED_OUT: Final = re.compile(r"\btimed? ?out|\bTimeout|ETIMEDOUT", re.IGNORECASE)
_WAITED: Final = frozenset({FailureKind.HANG, FailureKind.RENDEZVOUS})
_BY_THE_STOP: Final = frozenset(
    {FailureKind.KILLED, FailureKind.INTERRUPTED, FailureKind.PEER, FailureKind.CRASH}
)
_MAY_WAIT: Final = frozenset({FailureKind.NETWORK, FailureKind.SERVICE_TIMEOUT})
_ABOUT_THE_GANG: Final = _WAITED | {FailureKind.PEER}


def failure_of(ends: Sequence[RankEnd]) -> Failure | None:
    """Return the failure of a gang; None if no rank failed."""
    trimmed_ends = [
        replace(rank_end, tail=rank_end.tail[-TAIL_CHARACTERS:]) for rank_end in ends
    ]
    if len(trimmed_ends) == 1:
        trimmed_ends = [_named_by_mpi(trimmed_ends[0])]
    if any(rank_end.is_late for rank_end in trimmed_ends):
        return _left_behind(trimmed_ends)
    ends = [
        inner for rank_end in trimmed_ends for inner in _split_worker_ends(rank_end)
    ]
    failed = [
        read(rank_end, rank_end.exit)
        for rank_end in ends
        if rank_end.exit and not rank_end.exit.clean
    ]
    if not failed:
        return None
    first_at = min(rank_reading.at for rank_reading in failed)
    stopped = [
        rank_reading for rank_reading in failed if _was_stopped(rank_reading, first_at)
    ]
    rank_readings = [
        rank_reading for rank_reading in failed if rank_reading not in stopped
    ]
    own_readings = [
        rank_reading for rank_reading in rank_readings if not rank_reading.of_peers
    ]
    if own_readings:
        first_failure = min(
            own_readings,
            key=lambda one: (one.kind == FailureKind.UNKNOWN, one.at, one.end.rank),
        )
        if first_failure.kind in _MAY_WAIT and _TIMED_OUT.search(first_failure.quote):
            first_failure = _waited_for(own_readings, stopped) or first_failure
        return _failure_from_rank(
            first_failure,
            alike=sum(
                rank_reading.kind == first_failure.kind for rank_reading in own_readings
            ),
        )
    return _of_the_gang(ends, rank_readings, stopped)


def _named_by_mpi(end: RankEnd) -> RankEnd:
    """Return the end of a launcher of MPI with the rank that failed first, which a gang
    of one rank does not have itself."""
    rank = rank_of_mpi(end.tail)
    return end if rank is None else replace(end, rank=rank)


def _left_behind(ends: Sequence[RankEnd]) -> Failure | None:
    """Return the failure shown by a rank that was stopped at its time limit and whose
    last output is an error; None if there is no such rank. Errors that a stop itself
    causes do not count."""
    for rank_end in ends:
        if (
            error := last_error(rank_end)
        ) is not None and error.kind not in _BY_THE_STOP:
            return _failure_from_rank(error, alike=1)
    return None


def _split_worker_ends(end: RankEnd) -> list[RankEnd]:
    """Return the ends of the workers of a launcher, which share the launcher's log;
    each worker gets the rank that the log names. An end without several workers is
    returned as it is. The worker that the launcher saw fail first is dated slightly
    before the others."""
    apart = streams(end.tail)
    if end.exit is None or end.exit.clean or end.exit.out_of_memory or len(apart) < 2:
        return [end]
    root, how = inner_end(end.tail, end.exit)
    if root is not None and root not in apart:
        # it printed before it had a rank, or a library without its prefix
        apart[root] = without_streams(end.tail) if how.signal is None else ""
    return [
        replace(
            end, rank=rank, tail=tail, exit=replace(how, at=how.at - EARLIER_SECONDS)
        )
        if rank == root
        else replace(end, rank=rank, tail=tail)
        for rank, tail in sorted(apart.items())
    ]


def _was_stopped(one: RankReading, first_at: float) -> bool:
    """Return whether the rank was stopped because another rank failed at `first_at`: by
    TERM, or by KILL after its grace period."""
    if one.kind != FailureKind.KILLED or one.end.exit is None:
        return False
    killed = signal_of(one.end.exit) == KILL
    return one.at > first_at + (SOONEST_KILL_SECONDS if killed else 0.0)


def _waited_for(
    own: Sequence[RankReading], stopped: Sequence[RankReading]
) -> RankReading | None:
    """Return the rank for which the others waited; None without one. It had to be
    killed after another rank gave up. A rank that had raised an error and did not exit
    (in `own`) comes first, then one that had stopped doing anything (in `stopped`)."""
    raised = [rank_reading for rank_reading in own if _was_frozen(rank_reading)]
    frozen = [
        replace(rank_reading, kind=FailureKind.HANG)
        for rank_reading in stopped
        if _was_frozen(rank_reading)
    ]
    return next(iter(raised + frozen), None)


def _was_frozen(one: RankReading) -> bool:
    """Return whether the rank ignored the request to exit, so that it had to be killed.

    A rank that did exit was not blocking the others.
    """
    return one.end.exit is not None and signal_of(one.end.exit) == KILL


def _of_the_gang(
    ends: Sequence[RankEnd], told: Sequence[RankReading], stopped: Sequence[RankReading]
) -> Failure:
    """Return the failure of a gang in which no rank has a cause of its own. The cause
    is then a missing rank, or the network between the ranks."""
    order = sorted(told, key=lambda one: (one.at, one.end.rank))
    if (
        wire := next(
            (
                rank_reading
                for rank_reading in order
                if rank_reading.kind not in _ABOUT_THE_GANG
            ),
            None,
        )
    ) is not None:
        return _failure_from_rank(
            wire, alike=sum(rank_reading.kind == wire.kind for rank_reading in told)
        )
    first_reading = next(
        (rank_reading for rank_reading in order if rank_reading.kind in _WAITED),
        order[0],
    )
    waited = first_reading.kind in _WAITED
    idle = [rank_reading.end for rank_reading in stopped if _was_frozen(rank_reading)]
    idle = idle or ([rank_reading.end for rank_reading in stopped] if waited else [])
    quiet = [
        rank_end for rank_end in ends if rank_end.exit is None or rank_end.exit.clean
    ] or idle
    missing, alike = _find_missing_rank(ends, told, quiet), max(1, len(quiet))
    if missing is None:
        # then it was no peer of the gang
        alone = len(ends) == 1 and CUT_OFF.search(order[0].quote)
        kind = FailureKind.NETWORK if alone else order[0].kind
        if len(ends) == 1 and READER_GONE.search(order[0].quote):
            kind = FailureKind.PROGRAM
        step = NextStep.OTHER_RANKS if kind == FailureKind.HANG else order[0].step
        return _failure_from_rank(
            replace(order[0], kind=kind, step=step), alike=len(told)
        )
    kind = first_reading.kind if waited else FailureKind.HANG
    action_text = "waited for it" if waited else "lost contact with it"
    quote = (
        f"rank {first_reading.end.rank} {action_text}{_place_suffix(first_reading)}: "
        f"{first_reading.quote}"
        if first_reading.quote
        else ""
    )
    late = replace(
        first_reading, end=missing, kind=kind, quote=quote, place="", step=None
    )
    return _failure_from_rank(late, alike=alike)


def _place_suffix(one: RankReading) -> str:
    return f" at {one.place}" if one.place else ""


def _find_missing_rank(
    ends: Sequence[RankEnd], told: Sequence[RankReading], quiet: Sequence[RankEnd]
) -> RankEnd | None:
    """Return the missing rank: the one that other ranks name as missing, else the one
    that was silent to the end, else the one that is behind in its work. Return None
    without one."""
    of = {rank_end.rank: rank_end for rank_end in ends}
    awaited_ranks = [
        rank
        for rank_reading in told
        for rank in awaited(rank_reading.end.tail)
        if rank != rank_reading.end.rank
    ]
    for rank in awaited_ranks:
        if rank in of and rank not in {rank_reading.end.rank for rank_reading in told}:
            return of[rank]
        # a worker of a launcher that printed nothing
        if rank not in of and len({rank_end.node for rank_end in ends}) == 1:
            return replace(ends[0], rank=rank, tail="")
    if quiet:
        return min(quiet, key=lambda end: end.rank)
    if len(told) == 1 and len(stopped := stopped_by_launcher(told[0].end.tail)) == 1:
        return of.get(stopped[0], replace(told[0].end, rank=stopped[0]))
    slowest_rank = behind(
        {rank_reading.end.rank: rank_reading.end.tail for rank_reading in told}
    )
    return of.get(slowest_rank) if slowest_rank is not None else None


def _failure_from_rank(one: RankReading, *, alike: int) -> Failure:
    rank_end = one.end
    return Failure(
        kind=one.kind,
        culprit=f"rank {rank_end.rank} on {rank_end.node}",
        node=rank_end.node,
        rank=rank_end.rank,
        quote=one.quote[:QUOTE_CHARACTERS],
        place=one.place,
        step=one.step,
        alike=alike,
    )
