"""Who gets a GPU: Corral, or another program of its Ray cluster."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from corral.engines.ray.shared_gpus import LEAVE_SECONDS, HeldGpu, moves, offered

ALL = {index: HeldGpu(number=index) for index in range(4)}


def test_what_nobody_else_wants_is_taken() -> None:
    assert moves({}, set(), free=4, waiting=[], now=0.0).take == 4


def test_a_free_gpu_that_serves_a_waiting_program_is_left_to_it() -> None:
    assert moves({}, set(), free=2, waiting=[2], now=0.0).take == 0


def test_one_that_could_never_be_served_here_takes_nothing_from_corral() -> None:
    found = moves(ALL, {0}, free=0, waiting=[4], now=0.0)
    assert offered(found.held) == {0, 1, 2, 3}
    assert not found.let_go


def test_a_gpu_is_offered_no_more_before_it_is_let_go() -> None:
    first = moves(ALL, {0}, free=0, waiting=[2], now=0.0)
    assert offered(first.held) == {0, 1}
    assert not first.let_go
    then = moves(first.held, {0}, free=0, waiting=[2], now=LEAVE_SECONDS)
    assert (set(then.held), set(then.let_go)) == ({0, 1}, {2, 3})


def test_one_that_was_given_to_a_job_meanwhile_stays_and_another_leaves() -> None:
    first = moves(ALL, set(), free=0, waiting=[1], now=0.0)
    then = moves(first.held, {3}, free=0, waiting=[1], now=LEAVE_SECONDS)
    assert not then.let_go
    assert offered(then.held) == {0, 1, 3}


def test_when_nobody_waits_any_more_what_was_to_leave_is_offered_again() -> None:
    first = moves(ALL, set(), free=0, waiting=[1], now=0.0)
    assert offered(moves(first.held, set(), free=0, waiting=[], now=1.0).held) == set(
        ALL
    )


@given(
    busy=st.sets(st.integers(0, 3)),
    free=st.integers(0, 3),
    waiting=st.lists(st.integers(1, 8), max_size=5),
    seconds=st.floats(0.0, 100.0),
)
def test_nothing_that_a_job_uses_is_let_go(
    busy: set[int], free: int, waiting: Sequence[int], seconds: float
) -> None:
    first = moves(ALL, set(), free=free, waiting=waiting, now=0.0)
    then = moves(first.held, busy, free=free, waiting=waiting, now=seconds)
    assert not set(then.let_go) & busy
    assert busy <= set(then.held) | set(first.let_go)
