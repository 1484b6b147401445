"""Rules of the history of the load."""

from hypothesis import given
from hypothesis import strategies as st

from corral.route.load_history import (
    LOAD_BUCKETS,
    LOAD_SECONDS,
    LoadHistory,
    ServiceCounters,
    begin_history,
    count_load,
    note_replica_count,
)

ZERO = ServiceCounters(0, 0, 0)


def counted(requests: list[int], now: float = 0.0) -> LoadHistory:
    """Return a history of seconds with these numbers of requests."""
    total = 0
    history = begin_history(ZERO, now)
    for number in requests:
        total += number
        now += 1.0
        history = count_load(history, ServiceCounters(total, 10 * total, total), now)
    return history


@given(requests=st.lists(st.integers(0, 1000), max_size=200))
def test_the_last_minute_and_the_buckets_have_what_the_counters_grew_by(
    requests: list[int],
) -> None:
    history = counted(requests)
    minute = [round(rate.requests) for rate in history.seconds]
    assert minute == requests[-LOAD_SECONDS:]
    for index, bucket in enumerate(history.buckets):
        whole = requests[10 * index : 10 * index + 10]
        assert round(bucket.requests * 10) == sum(whole)
        assert round(bucket.new_tokens) == round(bucket.requests * 10)
    assert len(history.needs) == len(history.buckets) + 1


@given(gaps=st.lists(st.floats(0, 120), max_size=100))
def test_uneven_counters_lose_no_request(gaps: list[float]) -> None:
    now = 0.0
    history = begin_history(ZERO, now)
    total = 0
    for gap in gaps:
        now += gap
        total += 60
        history = count_load(history, ServiceCounters(total, 0, 0), now)
    kept = sum(rate.requests for rate in history.seconds[-history.open_seconds :])
    kept = kept if history.open_seconds else 0.0
    in_buckets = 10 * sum(rate.requests for rate in history.buckets)
    assert round(kept + in_buckets) == history.counters.requests
    assert history.counted_at <= now < history.counted_at + 1.0 + 1e-6


def test_an_hour_is_kept_and_no_more() -> None:
    history = counted([1] * 5000)
    assert len(history.seconds) == LOAD_SECONDS
    assert len(history.buckets) == LOAD_BUCKETS
    assert len(history.needs) == LOAD_BUCKETS
    assert history.age_seconds == 5000


def test_a_counter_that_fell_began_anew() -> None:
    history = counted([5, 5])
    history = count_load(history, ServiceCounters(3, 0, 0), 3.0)
    assert history.seconds[-1].requests == 3


def test_the_first_counters_of_an_old_service_are_no_burst() -> None:
    history = begin_history(ServiceCounters(1e9, 1e9, 1e9), 0.0)
    history = count_load(history, ServiceCounters(1e9 + 1, 1e9, 1e9), 1.0)
    assert history.mean_rate(10).requests == 0.1


def test_after_an_hour_without_counters_the_history_begins_anew() -> None:
    history = count_load(counted([50] * 20), ServiceCounters(9000, 0, 0), 20 + 3600.0)
    assert history.age_seconds == 0
    assert history.buckets == ()


def test_only_a_change_of_direction_is_a_turn() -> None:
    history = counted([1])
    for now, change, turned_at in (
        (1, 2, None),
        (2, 1, None),
        (3, 0, None),
        (4, -1, 4),
    ):
        history = note_replica_count(history, needed=1, change=change, now=float(now))
        assert history.turned_at == turned_at


def test_the_most_that_was_needed_is_forgotten_after_its_time() -> None:
    history = note_replica_count(counted([1] * 5), needed=7, change=0, now=5.0)
    for second in range(6, 600):
        history = count_load(history, history.counters, float(second))
        history = note_replica_count(history, needed=2, change=0, now=float(second))
        if second < 300:
            assert history.most_needed(300.0) == 7
        if second >= 320:
            assert history.most_needed(300.0) == 2
