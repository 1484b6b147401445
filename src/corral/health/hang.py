"""Verdict on a gang that makes no steps: which rank is stuck, where, and whether the
machine is to blame."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.domain.hang import NodeHang, RankLook, RankState
from corral.domain.ids import NodeId

# A job may be paused, or may work, at a place where all of its ranks are.
COMMON_PLACE_SECONDS: Final = 60.0
ALONE_SECONDS: Final = 30.0  # the only rank has no other to be compared with
# ranks that seem to work, but make no step
BUSY_SECONDS: Final = 1800.0
# ranks that could not be observed may work
UNSEEN_SECONDS: Final = 300.0
NAMED_RANKS: Final = 4  # in a sentence


class StuckSign(StrEnum):
    """Evidence that shows which rank is stuck."""

    NONE = ""  # no rank is named
    STOPPED = "stopped"
    UNINTERRUPTIBLE = "uninterruptible"
    ABSENT = "absent"
    FEWER_COLLECTIVES = "fewer_collectives"
    OTHER_COLLECTIVE = "other_collective"
    OUTSIDE_COLLECTIVE = "outside_collective"
    ELSEWHERE = "elsewhere"  # all other ranks stand at one place
    ALONE = "alone"  # it is the only rank of the job


@dataclass(frozen=True, slots=True, kw_only=True)
class HangVerdict:
    """Result of the looks at all ranks of a gang.

    Args:
        rank: The rank that is stuck; None if it is not sure which.
        node: Node of that rank; None without one.
        frame: Where the rank stands, such as "train.py:18 in load"; "" if not known.
        why: Sentence for people.
        is_sure: Both looks at the ranks agree. Otherwise no rank is blamed.
        is_due: The gang hangs, so that it is time to act. False: ranks work, or the
            bound of their phase is not over yet; newer reports may change that.
        blames_machine: The node is at fault, and not the program.
        sign: Evidence that names the rank.
    """

    why: str
    is_due: bool
    rank: int | None = None
    node: NodeId | None = None
    frame: str = ""
    is_sure: bool = False
    blames_machine: bool = False
    sign: StuckSign = StuckSign.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suspects:
    """Ranks that one look shows as stuck. `ranks` is empty without such a rank."""

    sign: StuckSign = StuckSign.NONE
    ranks: tuple[int, ...] = ()


def hang_verdict(
    reports: Mapping[NodeId, NodeHang],
    *,
    missing: Collection[NodeId] = (),
    broken_gpus: Collection[NodeId] = (),
) -> HangVerdict:
    """Return which rank of a gang is stuck.

    Args:
        reports: The newest report of each node of the gang that has sent one.
        missing: Nodes of the gang without a report.
        broken_gpus: Nodes on which a GPU has reported an error during the attempt.
    """
    first_looks = _looks_of(reports, 0)
    second_looks = _looks_of(reports, 1)
    if not second_looks:
        return HangVerdict(
            why=_without_looks(reports),
            is_due=_is_over_bound(reports, reports.keys())
            and (_is_user_bound(reports) or _is_unseen_for_long(reports)),
        )
    nodes = {
        look.rank: node
        for node in sorted(reports)
        for look in reports[node].rank_looks[1]
    }
    suspects = _suspects_in(second_looks)
    suspect_nodes = {nodes[rank] for rank in suspects.ranks} or set(reports)
    is_due = _is_due(reports, second_looks, suspects, suspect_nodes) and (
        not missing or _is_due_without(reports, suspects)
    )
    stalled = f"no rank has made a step for {_stalled_seconds(reports):.0f} s"
    rank = min(suspects.ranks, default=None)
    doubt = _doubt(first_looks, second_looks, suspects, missing)
    if rank is None or doubt:
        return HangVerdict(
            why=f"{stalled}; not sure which rank: {doubt}", is_due=is_due
        )
    node, look = nodes[rank], second_looks[rank]
    return HangVerdict(
        why=f"{stalled}; {_sentence(suspects, look, node)}",
        is_due=is_due,
        rank=rank,
        node=node,
        frame=look.frame,
        is_sure=True,
        blames_machine=(
            suspects.sign is StuckSign.UNINTERRUPTIBLE or node in broken_gpus
        ),
        sign=suspects.sign,
    )


def _looks_of(reports: Mapping[NodeId, NodeHang], index: int) -> dict[int, RankLook]:
    return {
        look.rank: look
        for node in sorted(reports)
        for look in reports[node].rank_looks[index]
    }


# --- which rank


def _suspects_in(looks: Mapping[int, RankLook]) -> _Suspects:
    """Return the ranks that one look at all ranks shows as stuck."""
    present = [look for look in looks.values() if look.state is not RankState.ABSENT]
    if _is_paused(present):
        return _Suspects()
    waiting = [look for look in present if look.is_in_collective]
    outside = [look for look in present if not look.is_in_collective]
    # the others may wait as well
    outside = [look for look in outside if look.frame] or outside
    for state, sign in (
        (RankState.STOPPED, StuckSign.STOPPED),
        (RankState.UNINTERRUPTIBLE, StuckSign.UNINTERRUPTIBLE),
    ):
        in_state = [look for look in present if look.state is state]
        if in_state:
            return _suspects(sign, in_state)
    if len(looks) == 1:
        return _suspects(StuckSign.ALONE, present)
    if waiting and outside:
        return _suspects(StuckSign.OUTSIDE_COLLECTIVE, _least_collectives(outside))
    if outside:
        elsewhere = _minority(outside, lambda look: look.function)
        return _suspects(StuckSign.ELSEWHERE, elsewhere)
    absent = [look for look in looks.values() if look.state is RankState.ABSENT]
    if absent:
        return _suspects(StuckSign.ABSENT, absent)
    return _suspects_in_collectives(waiting)


def _suspects_in_collectives(waiting: Sequence[RankLook]) -> _Suspects:
    """Return the ranks that wait in another collective than most ranks."""
    counts = {look.collective for look in waiting}
    if None not in counts and len(counts) > 1:
        # one that has begun one collective too many differs as well
        differing = _minority(waiting, lambda look: look.collective)
        return _suspects(
            StuckSign.FEWER_COLLECTIVES, differing or _least_collectives(waiting)
        )
    differing = _minority(waiting, lambda look: look.operation)
    return _suspects(StuckSign.OTHER_COLLECTIVE, differing)


def _suspects(sign: StuckSign, looks: Iterable[RankLook]) -> _Suspects:
    ranks = tuple(sorted(look.rank for look in looks))
    return _Suspects(sign=sign if ranks else StuckSign.NONE, ranks=ranks)


def _least_collectives(looks: Sequence[RankLook]) -> list[RankLook]:
    """Return the ranks that have begun the fewest collectives; all of them where that is
    not known."""
    counts = [look.collective for look in looks if look.collective is not None]
    if len(counts) < len(looks):
        return list(looks)
    return [look for look in looks if look.collective == min(counts)]


def _minority(
    looks: Sequence[RankLook], key: Callable[[RankLook], Hashable]
) -> list[RankLook]:
    """Return the only rank that differs from all others, of at least three; an empty
    list without one."""
    counts = Counter(key(look) for look in looks)
    if len(looks) < 3 or len(counts) != 2:
        return []
    rare, number = min(counts.items(), key=lambda item: item[1])
    return [look for look in looks if key(look) == rare] if number == 1 else []


def _doubt(
    first_looks: Mapping[int, RankLook],
    second_looks: Mapping[int, RankLook],
    suspects: _Suspects,
    missing: Collection[NodeId],
) -> str:
    """Return why the ranks that the second look shows are not sure to be stuck; "" if
    they are."""
    if not suspects.ranks:
        return "all ranks stand at the same place"
    if missing and suspects.sign not in (StuckSign.STOPPED, StuckSign.UNINTERRUPTIBLE):
        return f"no report has come from {', '.join(sorted(missing))}"
    if first_looks.keys() != second_looks.keys():
        return "the two looks show different ranks"
    if _suspects_in(first_looks) != suspects or any(
        _place(first_looks[rank]) != _place(second_looks[rank])
        for rank in suspects.ranks
    ):
        return "the two looks disagree"
    unread = [rank for rank in suspects.ranks if not second_looks[rank].frame]
    if unread and suspects.sign in (
        StuckSign.OUTSIDE_COLLECTIVE,
        StuckSign.ELSEWHERE,
        StuckSign.ALONE,
    ):
        return f"it could not be read where rank {unread[0]} stands"
    if _are_most(suspects, second_looks):
        return "most ranks do not wait for others"
    return ""


def _place(look: RankLook) -> tuple[int, RankState, str, bool]:
    """Return what is the same in two looks at a rank that is stuck. A rank that spins
    may stand at another line, and may sleep for a moment."""
    state = look.state
    if state is RankState.RUNNING:
        state = RankState.SLEEPING
    return look.pid, state, look.function, look.is_in_collective


# --- when to act


def _is_due(
    reports: Mapping[NodeId, NodeHang],
    looks: Mapping[int, RankLook],
    suspects: _Suspects,
    suspect_nodes: Collection[NodeId],
) -> bool:
    if _is_user_bound(reports):
        return _is_over_bound(reports, reports.keys())
    stalled_seconds = _stalled_seconds(reports)
    if _is_busy(looks):
        return stalled_seconds >= BUSY_SECONDS
    if not _is_over_bound(reports, suspect_nodes):
        return False
    if _is_unseen(looks):
        return _is_unseen_for_long(reports)
    if suspects.sign is StuckSign.ALONE:
        return stalled_seconds >= ALONE_SECONDS
    if _is_common(looks, suspects):
        return stalled_seconds >= COMMON_PLACE_SECONDS
    return True


def _is_busy(looks: Mapping[int, RankLook]) -> bool:
    """Return whether a rank works for which the others wait. Ranks that wait for others
    work only if all do, for example while they send much data."""
    outside = [look for look in looks.values() if not look.is_in_collective]
    present = [look for look in outside if look.state is not RankState.ABSENT]
    return any(look.is_busy for look in present or looks.values())


def _is_due_without(reports: Mapping[NodeId, NodeHang], suspects: _Suspects) -> bool:
    """Return whether it is time to act even if a node of the gang has not reported,
    whose ranks may work."""
    return (
        suspects.sign in (StuckSign.STOPPED, StuckSign.UNINTERRUPTIBLE)
        or _is_user_bound(reports)
        or _stalled_seconds(reports) >= COMMON_PLACE_SECONDS
    )


def _is_user_bound(reports: Mapping[NodeId, NodeHang]) -> bool:
    return any(report.is_user_bound for report in reports.values())


def _is_unseen(looks: Mapping[int, RankLook]) -> bool:
    """Return whether it could not be read where a rank stands for which others may
    wait."""
    return any(
        not look.frame
        and not look.is_in_collective
        and look.state in (RankState.RUNNING, RankState.SLEEPING)
        for look in looks.values()
    )


def _is_unseen_for_long(reports: Mapping[NodeId, NodeHang]) -> bool:
    return _stalled_seconds(reports) >= UNSEEN_SECONDS


def _is_common(looks: Mapping[int, RankLook], suspects: _Suspects) -> bool:
    """Return whether most ranks do the same, and do not wait for others."""
    present = [look for look in looks.values() if look.state is not RankState.ABSENT]
    if suspects.ranks:
        return _are_most(suspects, looks)
    return _is_paused(present) or not any(look.is_in_collective for look in present)


def _are_most(suspects: _Suspects, looks: Mapping[int, RankLook]) -> bool:
    return len(suspects.ranks) > max(1, len(looks) // 2)


def _is_paused(present: Sequence[RankLook]) -> bool:
    """Return whether all ranks are stopped, as a person does that pauses a job."""
    return len(present) > 1 and all(look.state is RankState.STOPPED for look in present)


def _is_over_bound(
    reports: Mapping[NodeId, NodeHang], nodes: Collection[NodeId]
) -> bool:
    """Return whether the gang makes no steps for longer than the bounds of the nodes."""
    return bool(nodes) and _stalled_seconds(reports) >= max(
        reports[node].bound_seconds for node in nodes
    )


def _stalled_seconds(reports: Mapping[NodeId, NodeHang]) -> float:
    """Return the time since the newest step of any node."""
    return min((report.stalled_seconds for report in reports.values()), default=0.0)


# --- sentences


def _without_looks(reports: Mapping[NodeId, NodeHang]) -> str:
    reasons = sorted({report.cannot_read for report in reports.values()} - {""})
    return "the ranks could not be observed" + "".join(f": {text}" for text in reasons)


def _sentence(suspects: _Suspects, look: RankLook, node: NodeId) -> str:
    ranks = [str(rank) for rank in suspects.ranks]
    more = len(ranks) - NAMED_RANKS
    names = ", ".join(ranks[:NAMED_RANKS]) + (f" and {more} more" if more > 0 else "")
    subject = f"rank {look.rank} on {node}"
    place = f" at {look.frame}" if look.frame else ""
    count = "an unknown number of" if look.collective is None else str(look.collective)
    sentences = {
        StuckSign.STOPPED: f"{subject} is stopped by a signal{place}",
        StuckSign.UNINTERRUPTIBLE: (
            f"{subject} waits for a device or a file system{place}"
        ),
        StuckSign.ABSENT: f"{subject} has ended, and the others wait for it",
        StuckSign.FEWER_COLLECTIVES: (
            f"{subject} has begun {count} collectives, other than most ranks,"
            f" and waits{place}"
        ),
        StuckSign.OTHER_COLLECTIVE: (
            f"{subject} waits in {look.operation or 'another collective'}{place}, and the"
            " others in another collective"
        ),
        StuckSign.OUTSIDE_COLLECTIVE: (
            f"{subject} stands{place or ' still'}, and the others wait for it"
        ),
        StuckSign.ELSEWHERE: f"{subject} stands{place}, and all others elsewhere",
        StuckSign.ALONE: f"{subject} stands{place or ' still'}",
    }
    all_ranks = f" (ranks {names})" if len(ranks) > 1 else ""
    return sentences[suspects.sign] + all_ranks
