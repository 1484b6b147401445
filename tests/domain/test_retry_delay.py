"""How long a job waits before another attempt after faults of the cluster."""

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.retry_delay import MOST_RECENT, recent_faults, retry_delay_seconds


def test_the_first_fault_is_retried_at_once_and_then_the_delay_doubles_up_to_a_minute() -> (
    None
):
    delays = [retry_delay_seconds(earlier) for earlier in range(10)]
    assert delays == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


@given(st.lists(st.floats(0, 700), min_size=20, max_size=20))
def test_any_20_retries_take_at_least_10_minutes(ran_seconds: list[float]) -> None:
    now = 0.0
    faults: tuple[float, ...] = ()
    for ran in ran_seconds:
        now += ran
        earlier = recent_faults(faults, now)
        faults = (*earlier, now)[-MOST_RECENT:]
        now += retry_delay_seconds(len(earlier))
    assert now - ran_seconds[0] >= 600


def test_faults_of_long_ago_and_of_a_clock_that_was_ahead_do_not_count() -> None:
    assert recent_faults((100.0, 500.0, 900.0, 5000.0), now=1000.0) == (500.0, 900.0)
