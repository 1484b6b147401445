"""Bounds on the time without a step, learned from the steps of a job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.hang import StallPhase
from corral.health.progress_bounds import LEAST_BOUNDS, REMEMBERED_STEPS, StepBounds

PAUSES = (StallPhase.SAVE, StallPhase.EVALUATE, StallPhase.DATA)


def after_steps(
    seconds: list[float], times: StepBounds | None = None
) -> tuple[StepBounds, float]:
    """Steps that take so long, and the moment of the last one."""
    times = StepBounds(began_at=100.0) if times is None else times
    now = 100.0
    for step, step_seconds in enumerate(seconds, start=1):
        now += step_seconds
        times.observe((step,), now)
    return times, now


def test_the_first_step_has_no_bound_but_the_users() -> None:
    times = StepBounds(began_at=0.0)
    assert times.look_seconds is None
    assert times.stalled_seconds(50.0) == 50.0
    assert all(times.bound_seconds(phase) is None for phase in StallPhase)
    own = StepBounds(began_at=0.0, user_bound_seconds=5.0)
    assert {own.bound_seconds(phase) for phase in StallPhase} == {5.0}


@given(seconds=st.lists(st.floats(0.001, 100.0), min_size=4, max_size=60))
def test_the_bound_is_three_times_the_longest_of_some_steps(
    seconds: list[float],
) -> None:
    times, _ = after_steps(seconds)
    usual = max(LEAST_BOUNDS.step_seconds, 3.0 * max(seconds[1:]))
    assert times.look_seconds == pytest.approx(usual)


def test_one_step_of_many_does_not_count() -> None:
    seconds = [0.1] * REMEMBERED_STEPS
    seconds[50] = 60.0
    assert after_steps(seconds)[0].look_seconds == LEAST_BOUNDS.step_seconds


def test_only_the_newest_steps_count() -> None:
    slow, fast = [20.0] * 10, [0.1] * REMEMBERED_STEPS
    assert after_steps(slow)[0].look_seconds == 60.0
    assert after_steps(slow + fast)[0].look_seconds == LEAST_BOUNDS.step_seconds


def test_the_first_steps_have_more_time() -> None:
    assert after_steps([40.0])[0].look_seconds == LEAST_BOUNDS.early_seconds
    assert after_steps([40.0, 15.0])[0].look_seconds == 45.0
    assert after_steps([40.0, 0.1, 0.1])[0].look_seconds == LEAST_BOUNDS.step_seconds


@given(growth=st.floats(1.0, 2.9), first=st.floats(0.01, 10.0))
def test_growing_steps_stay_within_the_bound(growth: float, first: float) -> None:
    times, now = after_steps([first, first, first])
    step_seconds = first
    for step in range(4, 12):
        step_seconds *= growth
        bound = times.look_seconds
        assert bound is not None
        assert step_seconds <= bound
        now += step_seconds
        times.observe((step,), now)


def test_steps_of_any_rank_count() -> None:
    times = StepBounds(began_at=0.0)
    assert times.observe((0, 1), 1.0)
    assert times.observe((1, 1), 2.0)
    assert not times.observe((1, 1), 9.0)
    assert times.stalled_seconds(9.0) == 7.0


def test_several_steps_between_two_looks_share_the_time() -> None:
    times = StepBounds(began_at=0.0)
    for number in range(1, 5):
        times.observe((number * 10,), number * 50.0)
    assert times.look_seconds == 15.0


def test_a_pause_of_the_node_does_not_count() -> None:
    times, now = after_steps([0.1] * 5)
    times.excuse(30.0)
    assert times.stalled_seconds(now + 32.0) == 2.0
    times.observe((6,), now + 32.0)
    assert times.look_seconds == LEAST_BOUNDS.step_seconds
    assert times.stalled_seconds(now + 33.0) == 1.0


def test_a_new_phase_has_more_time_and_later_ones_twice_the_longest() -> None:
    times, now = after_steps([0.1] * 5)
    for phase in (StallPhase.SAVE, StallPhase.EVALUATE):
        assert times.bound_seconds(phase) == LEAST_BOUNDS.new_phase_seconds
    times.observe((6,), now + 20.0, StallPhase.SAVE)
    assert times.bound_seconds(StallPhase.SAVE) == LEAST_BOUNDS.phase_seconds
    times.observe((7,), now + 420.0, StallPhase.SAVE)
    assert times.bound_seconds(StallPhase.SAVE) == 800.0
    assert times.bound_seconds(StallPhase.EVALUATE) == LEAST_BOUNDS.new_phase_seconds


def test_a_pause_for_data_is_learned_and_changes_no_other_bound() -> None:
    times, now = after_steps([0.1] * 5)
    assert times.bound_seconds(StallPhase.DATA) == LEAST_BOUNDS.step_seconds
    times.observe((6,), now + 30.0, StallPhase.DATA)
    assert times.bound_seconds(StallPhase.DATA) == 60.0
    assert times.look_seconds == LEAST_BOUNDS.step_seconds


def test_a_declared_phase_is_progress() -> None:
    times, now = after_steps([0.1] * 5)
    times.end_phase(StallPhase.COMPUTE, now + 3.0)  # an evaluation begins
    assert times.stalled_seconds(now + 5.0) == 2.0
    times.end_phase(StallPhase.EVALUATE, now + 103.0)
    assert times.stalled_seconds(now + 104.0) == 1.0
    assert times.bound_seconds(StallPhase.EVALUATE) == 200.0
    times.observe((6,), now + 104.0)
    assert times.look_seconds == LEAST_BOUNDS.step_seconds
