"""Histograms of latencies, with the bounds of vLLM's histograms of the same meaning."""

from bisect import bisect_left
from typing import Final

import msgspec

TTFT_BOUNDS: Final = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
    160.0,
    640.0,
    2560.0,
)
ITL_BOUNDS: Final = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
REQUEST_BOUNDS: Final = (
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
    240.0,
    480.0,
    960.0,
    1920.0,
    7680.0,
)


class LatencyHistogram(msgspec.Struct):
    """Counts of seconds by upper bounds."""

    bounds: tuple[float, ...]
    counts: list[int]
    sum: float = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def add(self, other: "LatencyHistogram") -> None:
        """Add the counts of a histogram with the same bounds."""
        pairs = zip(self.counts, other.counts, strict=True)
        self.counts = [first + second for first, second in pairs]
        self.sum += other.sum


def empty_histogram(bounds: tuple[float, ...]) -> LatencyHistogram:
    """Return a histogram without observations."""
    return LatencyHistogram(bounds, [0] * (len(bounds) + 1))
