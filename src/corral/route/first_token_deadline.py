"""Deadline of a first token, learned from the first tokens of the service."""

from math import ceil, log2
from typing import Final

LEAST_SECONDS: Final = 5.0
LATENESS: Final = 4.0  # times the 99th percentile, or the expected time
QUANTILE: Final = 0.99
LEAST_SAMPLES: Final = 100
GROWTH: Final = 1.002  # an observation has lost half its weight after 350 others
SAMPLES_BETWEEN_FITS: Final = 32
BINS_PER_OCTAVE: Final = 8
OCTAVES_BELOW_A_SECOND: Final = 12
OCTAVES: Final = 24


class FirstTokenDeadline:
    """Time after which a first token is so late that another replica is tried."""

    __slots__ = ("_bins", "_p99", "_samples", "_weight")

    def __init__(self) -> None:
        self._bins = [0.0] * (BINS_PER_OCTAVE * OCTAVES)
        self._weight = 1.0
        self._samples = 0
        self._p99: float | None = None

    @property
    def p99_seconds(self) -> float | None:
        """99th percentile of recent times; None with fewer than LEAST_SAMPLES."""
        return self._p99

    def observe(self, seconds: float) -> None:
        """Learn from the time between sending a request and its first token."""
        self._weight *= GROWTH
        self._bins[_bin_of(seconds)] += self._weight
        self._samples += 1
        if self._samples >= LEAST_SAMPLES and self._samples % SAMPLES_BETWEEN_FITS == 0:
            self._fit()

    def _fit(self) -> None:
        total = sum(self._bins)
        above = 0.0
        index = len(self._bins)
        while index and above <= (1.0 - QUANTILE) * total:
            index -= 1
            above += self._bins[index]
        self._p99 = 2.0 ** ((index + 1) / BINS_PER_OCTAVE - OCTAVES_BELOW_A_SECOND)
        self._bins = [weight / self._weight for weight in self._bins]
        self._weight = 1.0

    def seconds(self, expected_seconds: float) -> float | None:
        """Return the seconds until a first token is late; None if that is not known.

        Args:
            expected_seconds: Time to the first token that the replica's rates and its
                work suggest for this request: a long prompt is not late for its length.
        """
        if self._p99 is None:
            return None
        return max(LEAST_SECONDS, LATENESS * max(self._p99, expected_seconds))


def _bin_of(seconds: float) -> int:
    octaves = log2(max(seconds, 1e-9)) + OCTAVES_BELOW_A_SECOND
    return min(
        max(ceil(octaves * BINS_PER_OCTAVE) - 1, 0), BINS_PER_OCTAVE * OCTAVES - 1
    )
