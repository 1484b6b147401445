"""Token buckets: what they give at once, what comes back, and how many there are."""

from hypothesis import given
from hypothesis import strategies as st

from corral.ingress.buckets import TokenBuckets


def buckets(now: list[float], *, keys: int = 100) -> TokenBuckets:
    return TokenBuckets(rate=2.0, burst=10.0, clock=lambda: now[0], keys=keys)


def test_a_burst_is_given_at_once_and_then_the_rate() -> None:
    now = [0.0]
    found = buckets(now)
    assert [found.take("a") for _ in range(10)] == [0.0] * 10
    assert found.take("a") == 0.5
    assert found.take("b") == 0.0
    now[0] = 0.5
    assert found.take("a") == 0.0
    assert found.take("a") == 0.5


def test_what_is_charged_afterwards_leaves_a_debt_that_is_bounded() -> None:
    now = [0.0]
    found = buckets(now)
    found.charge("a", 1e9)
    assert found.left("a") == -10.0
    assert found.take("a") == 5.5
    now[0] = 5.5
    assert found.take("a") == 0.0


@given(st.lists(st.integers(0, 100), max_size=60))
def test_there_are_never_more_keys_than_allowed(keys: list[int]) -> None:
    found = buckets([0.0], keys=20)
    for key in keys:
        found.take(key)
    assert len(found) <= 20


@given(st.lists(st.floats(0, 3), max_size=100))
def test_no_more_is_given_than_burst_and_rate_allow(waits: list[float]) -> None:
    now, given_away = [0.0], 0
    found = buckets(now)
    for wait in waits:
        now[0] += wait
        given_away += found.take("a") == 0
    assert given_away <= 10 + 2 * now[0] + 1e-6
