"""Rules of the deadline of a first token."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route.first_token_deadline import (
    LATENESS,
    LEAST_SAMPLES,
    LEAST_SECONDS,
    FirstTokenDeadline,
)


@given(median=st.floats(0.01, 30.0), seed=st.integers(0, 1000))
def test_the_99th_percentile_is_learned(median: float, seed: int) -> None:
    chance = random.Random(seed)
    times = [median * chance.lognormvariate(0.0, 0.5) for _ in range(2000)]
    deadline = FirstTokenDeadline()
    for seconds in times:
        deadline.observe(seconds)
    assert deadline.p99_seconds is not None
    recent = sorted(times[-1500:])
    assert 0.7 * recent[1450] <= deadline.p99_seconds <= 1.5 * recent[-1]


def test_few_times_say_nothing() -> None:
    deadline = FirstTokenDeadline()
    for _ in range(LEAST_SAMPLES - 1):
        deadline.observe(0.1)
    assert deadline.seconds(0.1) is None


def test_quick_first_tokens_leave_the_least_time() -> None:
    deadline = FirstTokenDeadline()
    for _ in range(200):
        deadline.observe(0.01)
    assert deadline.seconds(0.01) == LEAST_SECONDS


def test_a_long_prompt_has_the_time_that_it_needs() -> None:
    deadline = FirstTokenDeadline()
    for _ in range(200):
        deadline.observe(0.01)
    assert deadline.seconds(20.0) == LATENESS * 20.0


def test_a_service_that_becomes_slower_gets_more_time() -> None:
    deadline = FirstTokenDeadline()
    for seconds in (0.1, 4.0):
        for _ in range(1000):
            deadline.observe(seconds)
    assert deadline.seconds(0.0) == pytest.approx(16.0, rel=0.1)


@given(st.lists(st.floats(0.0, 1e9), min_size=150, max_size=300))
def test_any_times_leave_a_deadline(times: list[float]) -> None:
    deadline = FirstTokenDeadline()
    for seconds in times:
        deadline.observe(seconds)
    result = deadline.seconds(1.0)
    assert result is not None
    assert result >= LEAST_SECONDS
