"""Rules of the budget of retries."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route.retry_budget import RetryBudget


@given(
    gaps=st.lists(st.floats(0, 0.2), min_size=1, max_size=300),
    share=st.floats(0, 0.5),
    per_second=st.floats(0, 20),
)
def test_retries_stay_within_the_share_and_the_rate(
    gaps: list[float], share: float, per_second: float
) -> None:
    budget = RetryBudget(share, per_second)
    taken = 0
    moments = list(accumulate(gaps))
    for number, now in enumerate(moments, start=1):
        budget.note_request(now)
        taken += budget.take(now) + budget.take(now)
        seconds = now - moments[0]
        burst = max(per_second, 1.0) if per_second else 0.0
        assert taken <= share * number + per_second * seconds + burst + 1e-6


def test_a_busy_service_may_retry_a_tenth_of_its_requests() -> None:
    budget = RetryBudget()
    taken = 0
    for number in range(60_000):  # 1,000 a second for a minute
        budget.note_request(number / 1000)
        taken += budget.take(number / 1000)
    assert 6000 <= taken <= 6000 + 10 * 61


def test_a_quiet_service_may_retry_ten_times_a_second() -> None:
    budget = RetryBudget()
    assert sum(budget.take(0.0) for _ in range(50)) == 10
    assert sum(budget.take(1.0) for _ in range(50)) == 10
    assert sum(budget.take(1000.0) for _ in range(50)) == 10


def test_requests_of_long_ago_allow_no_retries() -> None:
    budget = RetryBudget(0.1, 0.0)
    for _ in range(1000):
        budget.note_request(0.0)
    assert not budget.take(100.0)


def test_a_clock_that_steps_back_adds_nothing() -> None:
    budget = RetryBudget(0.0, 10.0)
    assert sum(budget.take(100.0) for _ in range(20)) == 10
    assert not budget.take(0.0)
    assert not budget.take(100.0)


def test_a_clock_that_steps_back_takes_nothing_away() -> None:
    budget = RetryBudget(0.0, 10.0)
    assert budget.take(100.0)
    assert sum(budget.take(0.0) for _ in range(20)) == 9


@pytest.mark.parametrize(("share", "per_second"), [(-0.1, 1.0), (0.1, -1.0)])
def test_a_budget_is_not_negative(share: float, per_second: float) -> None:
    with pytest.raises(ValueError, match="negative"):
        RetryBudget(share, per_second)
