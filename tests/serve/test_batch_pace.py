"""How many requests of a batch are sent at once, in virtual time."""

from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from corral.serve.batch_pace import (
    FIRST_LIMIT,
    HURRIED_CONCURRENCY,
    USUAL_CONCURRENCY,
    BatchConcurrency,
    LineRate,
    is_too_slow,
    retry_seconds,
)


def play(
    limit: BatchConcurrency, seconds_of: Callable[[int], float], rounds: int
) -> list[int]:
    """Let the service answer as many requests at once as the limit allows, each round
    in the seconds that it takes for this number. Return the limit of each round."""
    now = 0.0
    limits = []
    for _ in range(rounds):
        sent_at, count = now, limit.value
        now += seconds_of(count)
        for _ in range(count):
            limit.answered(sent_at, now)
        limits.append(limit.value)
    return limits


def test_the_limit_begins_small_and_grows_while_answers_stay_fast() -> None:
    limit = BatchConcurrency()
    assert limit.value == FIRST_LIMIT
    assert play(limit, lambda count: 1.0, 40)[-1] == USUAL_CONCURRENCY


def test_the_limit_stays_where_answers_become_slow() -> None:
    limits = play(BatchConcurrency(), lambda count: max(1.0, count / 16), 300)
    assert all(16 <= value <= 32 for value in limits[50:])


def test_a_service_that_has_become_much_slower_gets_fewer_requests() -> None:
    limit = BatchConcurrency()
    play(limit, lambda count: 1.0, 40)
    assert play(limit, lambda count: 30.0, 10)[-1] < USUAL_CONCURRENCY / 2


def test_a_service_that_stays_slower_is_measured_again() -> None:
    limit = BatchConcurrency()
    play(limit, lambda count: 1.0, 40)
    assert play(limit, lambda count: 30.0, 100)[-1] == USUAL_CONCURRENCY


def test_a_burst_of_refusals_halves_the_limit_once() -> None:
    limit = BatchConcurrency()
    play(limit, lambda count: 1.0, 40)
    for _ in range(64):
        limit.refused(sent_at=100.0, now=101.0)
    assert limit.value == USUAL_CONCURRENCY // 2
    limit.refused(sent_at=101.5, now=102.0)
    assert limit.value == USUAL_CONCURRENCY // 4


def test_a_batch_that_is_behind_sends_more_even_if_answers_become_slow() -> None:
    limit = BatchConcurrency()
    limit.is_behind = True
    limits = play(limit, lambda count: max(1.0, count / 16), 60)
    assert limits[-1] == HURRIED_CONCURRENCY


@given(st.integers(1, 40), st.lists(st.sampled_from("arb"), max_size=200))
def test_the_limit_of_the_user_is_never_exceeded(most: int, events: str) -> None:
    limit = BatchConcurrency(most)
    now = 0.0
    for event in events:
        now += 1.0
        if event == "b":
            limit.is_behind = not limit.is_behind
        elif event == "r":
            limit.refused(now - 0.5, now)
        else:
            for _ in range(limit.value + 8):
                limit.answered(now, now + 0.1)
        assert 1 <= limit.value <= most


def test_the_rate_is_that_of_the_last_minute() -> None:
    rate = LineRate(0.0, 100)
    assert rate.lines_per_second == 0.0
    for second in range(1, 31):
        rate.add(float(second), 100 + 10 * second)
    assert rate.lines_per_second == 10.0
    for second in range(31, 100):
        rate.add(float(second), 400)
    assert rate.lines_per_second == 0.0


def test_a_batch_is_too_slow_if_its_rate_leaves_lines_at_the_deadline() -> None:
    assert is_too_slow(1000, 1.0, 900.0)
    assert not is_too_slow(1000, 2.0, 900.0)
    assert not is_too_slow(0, 0.0, -1.0)
    assert is_too_slow(1, 0.0, 900.0)


def test_pauses_double_up_to_the_most() -> None:
    pauses = [retry_seconds(tries, 1.0, 60.0, 1.0) for tries in range(1, 100)]
    assert pauses[:3] == [1.0, 2.0, 4.0]
    assert all(a <= b for a, b in pairwise(pauses))
    assert pauses[-1] == 60.0
    assert retry_seconds(1, 1.0, 60.0, 0.0) == 0.5
