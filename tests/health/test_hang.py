"""The verdict on a gang that makes no steps, from two looks at its ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.hang import NodeHang, RankLook, RankState, StallPhase
from corral.domain.ids import NodeId
from corral.health.hang import (
    ALONE_SECONDS,
    BUSY_SECONDS,
    COMMON_PLACE_SECONDS,
    UNSEEN_SECONDS,
    HangVerdict,
    StuckSign,
    hang_verdict,
)

N1, N2 = NodeId("n1"), NodeId("n2")


def waiting(rank: int, **changes: Any) -> RankLook:
    """A rank that waits for the gradients of the others."""
    look = RankLook(
        rank=rank,
        pid=100 + rank,
        step=7,
        state=RankState.SLEEPING,
        frame="train.py:30 in main",
        is_in_collective=True,
        collective=21,
        operation="gloo:all_reduce",
    )
    return replace(look, **changes)


def stuck(rank: int, **changes: Any) -> RankLook:
    """A rank that does not come."""
    fields = {
        "frame": "train.py:18 in load",
        "is_in_collective": False,
        "collective": 20,
        **changes,
    }
    return waiting(rank, **fields)


def report(
    first: Sequence[RankLook],
    second: Sequence[RankLook] | None = None,
    **changes: Any,
) -> NodeHang:
    looks = (tuple(first), tuple(first if second is None else second))
    hang = NodeHang(rank_looks=looks, stalled_seconds=11.0, bound_seconds=10.0)
    return replace(hang, **changes)


def verdict_of(*looks: RankLook, **changes: Any) -> HangVerdict:
    return hang_verdict({N1: report(looks, **changes)})


STUCK = [
    (stuck(2), StuckSign.OUTSIDE_COLLECTIVE),
    (stuck(2, state=RankState.RUNNING), StuckSign.OUTSIDE_COLLECTIVE),
    (stuck(2, collective=None), StuckSign.OUTSIDE_COLLECTIVE),  # it holds the lock
    (stuck(2, state=RankState.STOPPED), StuckSign.STOPPED),
    (waiting(2, state=RankState.STOPPED), StuckSign.STOPPED),
    (stuck(2, state=RankState.UNINTERRUPTIBLE), StuckSign.UNINTERRUPTIBLE),
    (stuck(2, state=RankState.ABSENT, pid=0, frame=""), StuckSign.ABSENT),
    (waiting(2, collective=20), StuckSign.FEWER_COLLECTIVES),
    (waiting(2, collective=22), StuckSign.FEWER_COLLECTIVES),
    (waiting(2, operation="gloo:barrier"), StuckSign.OTHER_COLLECTIVE),
    (stuck(2, frame="data.py:4 in __getitem__"), StuckSign.OUTSIDE_COLLECTIVE),
]


@pytest.mark.parametrize(("look", "sign"), STUCK)
def test_the_rank_that_differs_is_named(look: RankLook, sign: StuckSign) -> None:
    verdict = verdict_of(waiting(0), waiting(1), look, waiting(3))
    assert (verdict.rank, verdict.node, verdict.sign) == (2, N1, sign)
    assert (verdict.is_sure, verdict.is_due) == (True, True)
    assert verdict.frame == look.frame
    assert f"rank 2 on {N1}" in verdict.why


@given(
    data=st.data(),
    size=st.integers(3, 9),
    nodes=st.integers(1, 4),
    case=st.sampled_from(STUCK),
)
def test_the_order_of_nodes_and_ranks_does_not_matter(
    data: st.DataObject, size: int, nodes: int, case: tuple[RankLook, StuckSign]
) -> None:
    culprit = data.draw(st.integers(0, size - 1))
    look, sign = case
    looks = [
        replace(look, rank=rank) if rank == culprit else waiting(rank)
        for rank in data.draw(st.permutations(range(size)))
    ]
    reports: dict[NodeId, NodeHang] = {}
    for number in data.draw(st.permutations(range(nodes))):
        part = [look for look in looks if look.rank % nodes == number]
        if part:
            reports[NodeId(f"n{number}")] = report(part)
    verdict = hang_verdict(reports)
    assert (verdict.rank, verdict.sign) == (culprit, sign)
    assert verdict.node == NodeId(f"n{culprit % nodes}")
    assert verdict == hang_verdict(dict(reversed(reports.items())))


def test_two_looks_that_disagree_blame_nothing() -> None:
    second = [waiting(0), stuck(1), waiting(2)]
    disagreeing: list[Sequence[RankLook]] = [
        [waiting(0), waiting(1), stuck(2)],  # another rank
        [waiting(0), stuck(1, frame="train.py:40 in step"), waiting(2)],
        [waiting(0), stuck(1, pid=7), waiting(2)],
        [waiting(0), waiting(1), waiting(2)],
        [waiting(0), stuck(1)],
        [waiting(0), stuck(1), stuck(2)],
        [],  # only one look
    ]
    for first in disagreeing:
        verdict = hang_verdict({N1: report(first, second)}, broken_gpus={N1})
        assert (verdict.rank, verdict.node, verdict.is_sure) == (None, None, False)
        assert not verdict.blames_machine
        assert verdict.is_due
        assert "not sure" in verdict.why


def test_a_loop_in_one_function_is_one_place() -> None:
    first = [waiting(0), stuck(1, state=RankState.RUNNING), waiting(2)]
    second = [waiting(0), stuck(1, frame="train.py:19 in load"), waiting(2)]
    assert hang_verdict({N1: report(first, second)}).rank == 1


def test_ranks_in_one_collective_blame_no_rank() -> None:
    verdict = verdict_of(waiting(0), waiting(1), waiting(2))
    assert (verdict.rank, verdict.is_sure, verdict.is_due) == (None, False, True)


def test_two_ranks_in_different_collectives_blame_no_rank() -> None:
    other = waiting(1, operation="gloo:barrier")
    assert verdict_of(waiting(0), other).rank is None
    assert verdict_of(waiting(0), waiting(1, collective=20)).rank == 1


def test_a_state_of_all_ranks_blames_no_rank() -> None:
    for state in (RankState.STOPPED, RankState.UNINTERRUPTIBLE):
        looks = [waiting(rank, state=state) for rank in range(3)]
        assert verdict_of(*looks).rank is None
    stopped = [waiting(0), stuck(1), waiting(2)]
    stopped = [replace(look, state=RankState.STOPPED) for look in stopped]
    assert verdict_of(*stopped).rank is None


def test_without_a_report_of_a_node_no_program_is_blamed() -> None:
    looks = [waiting(0), stuck(1), waiting(2)]
    verdict = hang_verdict({N1: report(looks)}, missing={N2})
    assert (verdict.rank, verdict.is_due) == (None, False)
    assert N2 in verdict.why
    late = report(looks, stalled_seconds=COMMON_PLACE_SECONDS)
    assert hang_verdict({N1: late}, missing={N2}).is_due
    own = report(looks, is_user_bound=True)
    assert hang_verdict({N1: own}, missing={N2}).is_due
    stopped = [waiting(0), stuck(1, state=RankState.STOPPED), waiting(2)]
    verdict = hang_verdict({N1: report(stopped)}, missing={N2})
    assert (verdict.rank, verdict.is_due) == (1, True)


def test_no_look_at_all_says_why() -> None:
    unseen = report([], cannot_read="py-spy is not installed")
    verdict = hang_verdict({N1: unseen})
    assert (verdict.rank, verdict.is_due) == (None, False)
    assert "py-spy is not installed" in verdict.why
    assert hang_verdict({N1: replace(unseen, stalled_seconds=UNSEEN_SECONDS)}).is_due
    assert hang_verdict({N1: replace(unseen, is_user_bound=True)}).is_due
    assert not hang_verdict({}).is_due


def test_a_rank_whose_place_could_not_be_read_may_work() -> None:
    gang = (waiting(0), stuck(1, frame=""), waiting(2))
    assert not due_at(UNSEEN_SECONDS - 1, *gang)
    assert due_at(UNSEEN_SECONDS, *gang)
    verdict = verdict_of(*gang)
    assert (verdict.rank, verdict.is_sure) == (None, False)
    assert "could not be read where rank 1 stands" in verdict.why
    assert verdict_of(stuck(0, frame=""), stuck(1), waiting(2), waiting(3)).rank == 1
    stopped = stuck(1, frame="", state=RankState.STOPPED)
    assert due_at(10.0, waiting(0), stopped, waiting(2))


@pytest.mark.parametrize("state", list(RankState))
def test_only_a_device_blames_the_machine(state: RankState) -> None:
    looks = [waiting(0), stuck(1, state=state), waiting(2)]
    verdict = hang_verdict({N1: report(looks)})
    assert verdict.blames_machine is (state is RankState.UNINTERRUPTIBLE)
    assert hang_verdict({N1: report(looks)}, broken_gpus={N1}).blames_machine
    other = hang_verdict({N1: report(looks)}, broken_gpus={N2})
    assert other.blames_machine is (state is RankState.UNINTERRUPTIBLE)


# --- when it is due


def due_at(seconds: float, *looks: RankLook, **changes: Any) -> bool:
    return verdict_of(*looks, stalled_seconds=seconds, **changes).is_due


def test_it_is_due_after_the_bound() -> None:
    gang = (waiting(0), stuck(1), waiting(2))
    assert not due_at(9.9, *gang)
    assert due_at(10.0, *gang)
    assert not due_at(59.0, *gang, bound_seconds=60.0, phase=StallPhase.SAVE)


def test_the_bound_is_of_the_node_whose_rank_does_not_come() -> None:
    reports = {
        N1: report([waiting(0)], stalled_seconds=100.0),
        N2: report([stuck(1)], stalled_seconds=100.0, bound_seconds=300.0),
    }
    assert not hang_verdict(reports).is_due
    other = {
        N1: replace(reports[N1], bound_seconds=300.0),
        N2: replace(reports[N2], bound_seconds=10.0),
    }
    assert hang_verdict(other).is_due
    late = {
        node: replace(hang, stalled_seconds=300.0) for node, hang in reports.items()
    }
    assert hang_verdict(late).is_due


def test_the_newest_step_of_any_node_counts() -> None:
    reports = {
        N1: report([waiting(0)], stalled_seconds=100.0),
        N2: report([stuck(1)], stalled_seconds=4.0),
    }
    assert not hang_verdict(reports).is_due


def test_ranks_that_work_are_no_hang() -> None:
    gang = (waiting(0), stuck(1, is_busy=True), waiting(2))
    assert not due_at(BUSY_SECONDS - 1, *gang)
    assert due_at(BUSY_SECONDS, *gang)
    # what others do while they wait does not matter
    assert due_at(11.0, waiting(0, is_busy=True), stuck(1), waiting(2))
    assert not due_at(11.0, waiting(0, is_busy=True), waiting(1))


def test_the_users_bound_holds_whatever_ranks_do() -> None:
    gang = (waiting(0), stuck(1, is_busy=True), waiting(2))
    assert due_at(11.0, *gang, is_user_bound=True)
    assert not due_at(9.0, *gang, is_user_bound=True)
    assert due_at(11.0, stuck(0), is_user_bound=True)


COMMON: list[tuple[RankLook, ...]] = [
    (stuck(0), stuck(1), stuck(2)),  # all at one place
    (stuck(0), stuck(1), waiting(2)),
    tuple(stuck(rank, state=RankState.STOPPED) for rank in range(3)),
    tuple(waiting(rank, state=RankState.STOPPED) for rank in range(3)),
]


@pytest.mark.parametrize("looks", COMMON)
def test_a_place_of_most_ranks_may_be_a_pause(looks: tuple[RankLook, ...]) -> None:
    assert not due_at(COMMON_PLACE_SECONDS - 1, *looks)
    verdict = verdict_of(*looks, stalled_seconds=COMMON_PLACE_SECONDS)
    assert (verdict.is_due, verdict.rank) == (True, None)


def test_the_only_rank_of_a_job_is_named_later() -> None:
    assert not due_at(ALONE_SECONDS - 1, stuck(0))
    verdict = verdict_of(stuck(0), stalled_seconds=ALONE_SECONDS)
    assert (verdict.rank, verdict.sign) == (0, StuckSign.ALONE)
    assert due_at(10.0, stuck(0, state=RankState.STOPPED))


def test_a_rank_that_stands_elsewhere_than_all_others_is_named() -> None:
    looks = [stuck(0), stuck(1), stuck(2, frame="io.py:3 in read"), stuck(3)]
    verdict = verdict_of(*looks)
    assert (verdict.rank, verdict.sign) == (2, StuckSign.ELSEWHERE)


@given(
    looks=st.lists(
        st.builds(
            RankLook,
            rank=st.integers(0, 5),
            pid=st.integers(1, 3),
            step=st.just(7),
            state=st.sampled_from(RankState),
            frame=st.sampled_from(["", "a.py:1 in f", "a.py:2 in f", "b.py:1 in g"]),
            is_in_collective=st.booleans(),
            collective=st.none() | st.integers(0, 2),
            operation=st.sampled_from(["", "all_reduce", "barrier"]),
            is_busy=st.booleans(),
        ),
        max_size=12,
    ),
    seconds=st.floats(0, 4_000),
)
def test_a_verdict_is_consistent(looks: list[RankLook], seconds: float) -> None:
    half = len(looks) // 2
    reports: Mapping[NodeId, NodeHang] = {
        N1: report(looks[:half], looks[half:], stalled_seconds=seconds)
    }
    verdict = hang_verdict(reports, broken_gpus={N1})
    assert verdict.is_sure is (verdict.rank is not None) is (verdict.node is not None)
    assert verdict.blames_machine is verdict.is_sure
    assert (verdict.sign is StuckSign.NONE) is (verdict.rank is None)
    if verdict.rank is not None:
        assert verdict.rank in {look.rank for look in looks[:half]}
    if verdict.is_due:
        assert seconds >= 10.0
