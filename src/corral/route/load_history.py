"""History of the load of a service: whole counters, folded into seconds and ten-second
buckets of at most one hour."""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

LOAD_SECONDS: Final = 60  # kept second by second
LOAD_BUCKET_SECONDS: Final = 10
LOAD_BUCKETS: Final = 360  # one hour


class ServiceCounters(NamedTuple):
    """Whole counters of a service, summed over its gateways.

    Attributes:
        requests: requests that arrived.
        new_tokens: tokens of their prompts that no cache had.
        output_tokens: tokens of their answers, expected ones until an answer ends.
        outstanding: requests that have not ended, now; not a counter.
    """

    requests: float
    new_tokens: float
    output_tokens: float
    outstanding: float = 0.0


class LoadRate(NamedTuple):
    """Load of a span of time: amounts a second, and the mean of requests outstanding."""

    requests: float
    new_tokens: float
    output_tokens: float
    outstanding: float


NO_LOAD: Final = LoadRate(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadHistory:
    """Load of the last hour, and what was decided about it.

    Attributes:
        begun_at: time of the first counters.
        counted_at: time of the last counters that were folded in.
        seconds: loads of the last minute, the newest last.
        buckets: loads of ten seconds each, without the open bucket, the newest last.
        needs: most replicas that were needed in each bucket, the open one last.
        direction: last change of the number of replicas: 1 up, -1 down, 0 none yet.
        turned_at: time of the last change of direction; None: none yet.
    """

    begun_at: float
    counted_at: float
    counters: ServiceCounters
    seconds: tuple[LoadRate, ...] = ()
    buckets: tuple[LoadRate, ...] = ()
    open_seconds: int = 0  # newest seconds that are in no bucket yet
    needs: tuple[int, ...] = (0,)
    direction: int = 0
    turned_at: float | None = None

    @property
    def age_seconds(self) -> float:
        """Time that the history covers, at most since it began."""
        return self.counted_at - self.begun_at

    def mean_rate(self, seconds: int) -> LoadRate:
        """Return the mean load of the last seconds, at most a minute.

        A history that is shorter than a bucket counts as one bucket, so that the first
        requests of a service are no burst.
        """
        recent = self.seconds[-seconds:]
        return _mean(recent, max(len(recent), min(seconds, LOAD_BUCKET_SECONDS)))

    def most_needed(self, seconds: float) -> int:
        """Return the most replicas that were needed within the last seconds."""
        buckets = int(seconds // LOAD_BUCKET_SECONDS) + 1
        return max(self.needs[-buckets:])


def begin_history(counters: ServiceCounters, now: float) -> LoadHistory:
    """Return the history of a service whose counters are read for the first time."""
    return LoadHistory(begun_at=now, counted_at=now, counters=counters)


def count_load(
    history: LoadHistory, counters: ServiceCounters, now: float
) -> LoadHistory:
    """Fold whole counters into the history.

    Counters that come more often than each second wait for the second to end; those that
    come after a gap are spread evenly over it. A counter that fell started again from 0,
    with its gateway. After a gap of an hour or more the history starts again.
    """
    elapsed = int(now - history.counted_at)
    if elapsed < 1:
        return history
    if elapsed >= LOAD_BUCKETS * LOAD_BUCKET_SECONDS:
        return begin_history(counters, now)
    before = history.counters
    rate = LoadRate(
        _increase(before.requests, counters.requests) / elapsed,
        _increase(before.new_tokens, counters.new_tokens) / elapsed,
        _increase(before.output_tokens, counters.output_tokens) / elapsed,
        counters.outstanding,
    )
    seconds = history.seconds
    buckets = history.buckets
    needs = history.needs
    open_seconds = history.open_seconds
    for _ in range(elapsed):
        seconds = (*seconds[1 - LOAD_SECONDS :], NO_LOAD if rate == NO_LOAD else rate)
        open_seconds += 1
        if open_seconds == LOAD_BUCKET_SECONDS:
            open_seconds = 0
            bucket = _mean(seconds[-LOAD_BUCKET_SECONDS:], LOAD_BUCKET_SECONDS)
            buckets = (*buckets[1 - LOAD_BUCKETS :], bucket)
            needs = (*needs[1 - LOAD_BUCKETS :], 0)
    return replace(
        history,
        counted_at=history.counted_at + elapsed,
        counters=counters,
        seconds=seconds,
        buckets=buckets,
        open_seconds=open_seconds,
        needs=needs,
    )


def note_replica_count(
    history: LoadHistory, *, needed: int, change: int, now: float
) -> LoadHistory:
    """Record a decision in the history.

    Args:
        needed: replicas that the load needed.
        change: replicas that were added, or removed if it is negative.
    """
    needs = (*history.needs[:-1], max(history.needs[-1], needed))
    direction = (change > 0) - (change < 0)
    if not direction:
        return replace(history, needs=needs)
    turned = history.direction not in (0, direction)
    return replace(
        history,
        needs=needs,
        direction=direction,
        turned_at=now if turned else history.turned_at,
    )


def _increase(before: float, after: float) -> float:
    return after - before if after >= before else after


def _mean(rates: tuple[LoadRate, ...], count: int) -> LoadRate:
    if not any(rate is not NO_LOAD for rate in rates):
        return NO_LOAD
    return LoadRate(*(sum(amounts) / count for amounts in zip(*rates, strict=True)))
