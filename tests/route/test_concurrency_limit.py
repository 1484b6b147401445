"""Rules of the learned limit of a replica."""

import heapq
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route.concurrency_limit import ConcurrencyLimit


def replay(
    limit: ConcurrencyLimit, slots: int, answers: int, offered: int = 100_000
) -> tuple[float, float]:
    """Serve `offered` waiting clients at a replica with a number of slots.

    Returns: requests a second over those of all slots, and the mean time to first token
        over its least; both over the second half.
    """
    chance = random.Random(slots)
    free = [0.0] * slots
    in_flight: list[tuple[float, int, float, int]] = []
    now = 0.0
    ended = 0
    ratios = []
    half_time = 0.0
    while ended < answers:
        while len(in_flight) < min(limit.limit, offered):
            begin = max(now, heapq.heappop(free))
            seconds = chance.uniform(0.8, 1.2)
            heapq.heappush(free, begin + seconds)
            ttft = begin - now + 0.2
            entry = (begin + seconds, ended, ttft, len(in_flight) + 1)
            heapq.heappush(in_flight, entry)
        now, _, ttft, at_sending = heapq.heappop(in_flight)
        limit.observe(at_sending, ttft)
        ended += 1
        if ended == answers // 2:
            half_time = now
        if ended > answers // 2:
            ratios.append(ttft / 0.2)
    throughput = (answers - answers // 2) / (now - half_time)
    return throughput / slots, sum(ratios) / len(ratios)


@pytest.mark.parametrize("slots", [1, 4, 16, 64, 200])
def test_the_limit_keeps_a_replica_busy_and_its_queue_short(slots: int) -> None:
    limit = ConcurrencyLimit()
    throughput, growth = replay(limit, slots, 20_000)
    assert throughput >= 0.85
    assert growth <= 6.0
    assert slots * 0.7 <= limit.limit <= slots * 2 + 2


def test_a_limit_that_is_not_used_does_not_rise() -> None:
    limit = ConcurrencyLimit()
    replay(limit, 100, 5000, offered=10)
    assert limit.limit == 64


def test_a_replica_that_becomes_slower_for_ever_gets_a_new_least_time() -> None:
    limit = ConcurrencyLimit(64)
    for _ in range(2000):
        limit.observe(64, 0.1)
    for _ in range(8000):
        limit.observe(limit.limit, 0.5)
    assert limit.limit > 32


def test_long_prompts_are_compared_with_their_own_time() -> None:
    limit = ConcurrencyLimit(64)
    for number in range(1000):
        expected = 0.1 if number % 2 else 10.0
        limit.observe(30, expected * 1.1, expected)
    assert limit.limit == 64


def test_prompts_that_were_cached_unexpectedly_do_not_lower_the_limit() -> None:
    limit = ConcurrencyLimit(64)
    for number in range(1000):
        limit.observe(30, 0.2 if number % 10 == 0 else 5.5, 5.0)
    assert limit.limit == 64


def test_short_prompts_behind_a_long_one_do_not_lower_the_limit() -> None:
    limit = ConcurrencyLimit(64)
    for _ in range(100):
        limit.observe(30, 10.0, 10.0)
        for _ in range(9):
            limit.observe(30, 1.0, 0.1)
    assert limit.limit == 64


@given(
    samples=st.lists(
        st.tuples(st.integers(0, 10_000), st.floats(0, 1e6), st.floats(0, 1e3)),
        max_size=300,
    )
)
def test_any_observations_leave_the_limit_within_its_bounds(
    samples: list[tuple[int, float, float]],
) -> None:
    limit = ConcurrencyLimit(8, 1, 100)
    for in_flight, ttft, expected in samples:
        limit.observe(in_flight, ttft, expected)
        assert 1 <= limit.limit <= 100


def test_the_bounds_are_checked() -> None:
    with pytest.raises(ValueError, match="not 1 <="):
        ConcurrencyLimit(0)
