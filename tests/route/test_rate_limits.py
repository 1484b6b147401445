"""Rules of the limits of a caller."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route.rate_limits import CallerLimits, LimitName, TokenBucket


@given(
    steps=st.lists(st.tuples(st.floats(0, 10), st.floats(0, 5000)), max_size=200),
    per_minute=st.floats(60, 10_000),
)
def test_admitted_tokens_stay_within_the_rate_and_one_burst_and_one_request(
    steps: list[tuple[float, float]], per_minute: float
) -> None:
    limits = CallerLimits(tokens_per_minute=per_minute)
    admitted = 0.0
    largest = 0.0
    moments = accumulate(gap for gap, _ in steps)
    for now, (_, tokens) in zip(moments, steps, strict=True):
        largest = max(largest, tokens)
        if limits.admit(now, tokens) is None:
            admitted += tokens
        begin = steps[0][0]
        allowed = (now - begin) * per_minute / 60 + per_minute + largest
        assert admitted <= allowed * (1 + 1e-6)


@given(
    used=st.lists(st.floats(1, 500), min_size=1, max_size=50),
    tokens=st.floats(1, 500),
)
def test_a_refused_request_is_admitted_after_the_seconds_of_its_refusal(
    used: list[float], tokens: float
) -> None:
    limits = CallerLimits(requests_per_minute=20, tokens_per_minute=600)
    now = 0.0
    for earlier in used:
        limits.admit(now, earlier)
    refusal = limits.admit(now, tokens)
    for _ in range(3):  # one limit after the other
        if refusal is None:
            break
        assert 0 < refusal.retry_after_seconds <= 60
        now += refusal.retry_after_seconds + 1e-6
        refusal = limits.admit(now, tokens)
    assert refusal is None


def test_each_limit_is_named() -> None:
    requests = CallerLimits(requests_per_minute=1)
    tokens = CallerLimits(tokens_per_minute=100)
    concurrency = CallerLimits(concurrency=1)
    names = []
    for limits in (requests, tokens, concurrency):
        assert limits.admit(0.0, 100) is None
        refusal = limits.admit(0.0, 100)
        assert refusal is not None
        names.append(refusal.limit)
    assert names == list(LimitName)


def test_concurrency_counts_from_admission_to_the_end() -> None:
    limits = CallerLimits(concurrency=2)
    assert limits.admit(0.0, 1) is None
    assert limits.admit(0.0, 1) is None
    assert limits.admit(0.0, 1) is not None
    limits.finish(1, 1)
    assert limits.in_flight == 1
    assert limits.admit(0.0, 1) is None


def test_a_refused_request_takes_nothing() -> None:
    limits = CallerLimits(requests_per_minute=100, tokens_per_minute=100, concurrency=5)
    assert limits.admit(0.0, 100) is None
    for _ in range(50):
        assert limits.admit(0.0, 50) is not None
    assert limits.in_flight == 1
    assert limits.admit(30.0, 50) is None


def test_tokens_that_were_not_used_are_given_back() -> None:
    limits = CallerLimits(tokens_per_minute=1000)
    assert limits.admit(0.0, 1000) is None
    assert limits.admit(0.0, 500) is not None
    limits.finish(200, 1000)
    assert limits.admit(0.0, 500) is None


def test_tokens_beyond_the_estimate_are_charged() -> None:
    limits = CallerLimits(tokens_per_minute=600)
    assert limits.admit(0.0, 100) is None
    limits.finish(1100, 100)
    refusal = limits.admit(0.0, 100)
    assert refusal is not None
    assert refusal.retry_after_seconds == pytest.approx(60.0)


def test_a_request_above_the_burst_is_admitted_and_paid_for_later() -> None:
    limits = CallerLimits(tokens_per_minute=600)
    assert limits.admit(0.0, 1200) is None
    assert limits.admit(60.0, 1) is not None
    assert limits.admit(60.2, 1) is None


def test_a_caller_without_limits_is_always_admitted() -> None:
    limits = CallerLimits()
    assert all(limits.admit(0.0, 1e9) is None for _ in range(1000))


def test_a_long_pause_allows_one_burst_only() -> None:
    limits = CallerLimits(requests_per_minute=5)
    for now in (0.0, 10_000.0):
        admitted = [limits.admit(now, 1) is None for _ in range(20)]
        assert sum(admitted) == 5


def test_a_clock_that_steps_back_adds_nothing() -> None:
    bucket = TokenBucket(per_second=1.0, burst=10.0)
    assert bucket.wait_seconds(10.0, 100.0) == 0.0
    bucket.take(10.0)
    assert bucket.wait_seconds(1.0, 0.0) == 1.0
    assert bucket.wait_seconds(1.0, 100.0) == 1.0


@pytest.mark.parametrize(("per_second", "burst"), [(0.0, 1.0), (1.0, 0.0)])
def test_a_bucket_needs_a_rate_and_a_burst(per_second: float, burst: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        TokenBucket(per_second, burst)


def test_a_limit_that_changes_keeps_what_it_has_counted() -> None:
    limits = CallerLimits(requests_per_minute=60, concurrency=60)
    for _ in range(60):
        assert limits.admit(0.0, 1) is None
    limits.change(0.0, 120, None, None)
    refusal = limits.admit(0.0, 1)
    assert refusal is not None
    assert refusal.retry_after_seconds == pytest.approx(0.5)
    assert limits.admit(0.5, 1) is None
    assert limits.in_flight == 61
    limits.change(60.0, 6, None, 10)
    assert limits.admit(60.0, 1) == (LimitName.CONCURRENCY, 1.0)
    for _ in range(61):
        limits.finish(1, 1)
    admitted = [limits.admit(60.0, 1) is None for _ in range(7)]
    assert admitted == [True] * 6 + [False]


def test_what_limits_have_admitted_and_refused_is_counted() -> None:
    limits = CallerLimits(tokens_per_minute=100)
    assert limits.admit(0.0, 100) is None
    assert limits.admit(0.0, 100) is not None
    limits.finish(30, 100)
    assert (limits.admitted, limits.tokens) == (1, 30)
    assert limits.refused == {LimitName.TOKENS_PER_MINUTE: 1}
