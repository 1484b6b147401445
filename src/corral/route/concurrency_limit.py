"""Learned limit of the requests in flight at a replica."""

from math import inf, sqrt
from typing import Final

TOLERANCE: Final = 2.0  # times the least time to first token, before the limit falls
LEAST_DECREASE: Final = 0.9
MOST_DECREASE: Final = 0.5
FILLED: Final = 0.8  # share of the limit that must be used before it rises
LEAST_SAMPLES: Final = 16
LEAST_WINDOWS: Final = 50  # windows after which the least time is measured again


class ConcurrencyLimit:
    """Limit that rises while the time to first token stays near its least, and falls when
    it grows.

    Times are summed over a window of requests and compared with the sum of what they
    need alone, because behind a long prompt a short one takes many times its own time.

    Args:
        initial: limit to begin with.
        least: smallest limit.
        most: largest limit.
    """

    __slots__ = (
        "_base",
        "_expected_seconds",
        "_least",
        "_limit",
        "_most",
        "_most_in_flight",
        "_next_base",
        "_samples",
        "_seconds",
        "_windows",
    )

    def __init__(self, initial: int = 64, least: int = 1, most: int = 4096) -> None:
        if not 1 <= least <= initial <= most:
            raise ValueError(f"not 1 <= {least} <= {initial} <= {most}")
        self._limit = float(initial)
        self._least = least
        self._most = most
        self._base = inf
        self._next_base = inf
        self._windows = 0
        self._samples = 0
        self._seconds = 0.0
        self._expected_seconds = 0.0
        self._most_in_flight = 0

    @property
    def limit(self) -> int:
        """Most requests in flight."""
        return int(self._limit)

    def observe(
        self,
        in_flight: int,
        ttft_seconds: float,
        expected_seconds: float | None = None,
    ) -> None:
        """Learn from the time to a first token.

        Args:
            in_flight: requests in flight at the replica when this one was sent.
            ttft_seconds: time from sending to the first token.
            expected_seconds: time that the prompt needs without others, so that long and
                short prompts compare; None if all are alike. A shorter time counts as
                this one: more of the prompt was cached than expected.
        """
        if in_flight > self._limit:  # sent before the limit fell: says nothing about it
            return
        if expected_seconds is None:
            expected_seconds = 1.0
        else:
            expected_seconds = max(expected_seconds, 1e-6)
            ttft_seconds = max(ttft_seconds, expected_seconds)
        ratio = ttft_seconds / expected_seconds
        self._base = min(self._base, ratio)
        self._next_base = min(self._next_base, ratio)
        self._most_in_flight = max(self._most_in_flight, in_flight)
        self._seconds += ttft_seconds
        self._expected_seconds += expected_seconds
        self._samples += 1
        if self._samples >= max(LEAST_SAMPLES, self._limit / 2):
            self._end_window()

    def _end_window(self) -> None:
        growth = self._seconds / self._expected_seconds / max(self._base, 1e-9)
        if growth > TOLERANCE:
            factor = min(LEAST_DECREASE, max(MOST_DECREASE, TOLERANCE / growth))
            self._limit *= factor
        elif self._most_in_flight >= FILLED * self.limit:
            self._limit += sqrt(self._limit)
        self._limit = min(float(self._most), max(float(self._least), self._limit))
        self._samples = 0
        self._seconds = 0.0
        self._expected_seconds = 0.0
        self._most_in_flight = 0
        self._windows += 1
        if self._windows >= LEAST_WINDOWS:
            self._base = self._next_base
            self._next_base = inf
            self._windows = 0
