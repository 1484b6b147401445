"""Counts of latencies in the buckets of a histogram."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyCounts:
    """Latencies by the upper bounds of buckets, as the gateway's histograms have them.

    Attributes:
        bounds: upper bounds in seconds, ascending.
        counts: latencies in each bucket; one more than bounds, for those above all.
        seconds: sum of the latencies.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    seconds: float

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.bounds) + 1 or not self.bounds:
            raise ValueError(f"{len(self.bounds)} bounds, {len(self.counts)} counts")
        if any(first >= second for first, second in pairwise(self.bounds)):
            raise ValueError(f"the bounds do not ascend: {self.bounds}")
        if min(self.counts) < 0 or self.seconds < 0 or self.bounds[0] <= 0:
            raise ValueError("bounds, counts and seconds are not negative")

    @property
    def total(self) -> int:
        """Number of latencies."""
        return sum(self.counts)

    @property
    def mean_seconds(self) -> float:
        """Mean latency; 0 without latencies."""
        return self.seconds / self.total if self.total else 0.0

    def quantile(self, share: float) -> float | None:
        """Return the latency that this share of all does not exceed; None: no latency.

        Within a bucket the latencies count as evenly spread. Above the last bound it is
        the last bound.
        """
        rank = share * self.total
        below = 0
        lower = 0.0
        if not self.total:
            return None
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and below + count >= rank:
                return lower + (bound - lower) * (rank - below) / count
            below += count
            lower = bound
        return lower


def count_latencies(
    bounds: Sequence[float], latencies: Sequence[float]
) -> LatencyCounts:
    """Return the counts of latencies in seconds."""
    counts = [0] * (len(bounds) + 1)
    for latency in latencies:
        counts[bisect_left(bounds, latency)] += 1
    return LatencyCounts(
        bounds=tuple(bounds), counts=tuple(counts), seconds=sum(latencies)
    )
