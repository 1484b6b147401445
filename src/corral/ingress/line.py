"""Lines of requests: a few are served at once, those that follow in their turn."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from corral.ingress.buckets import TokenBuckets


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePace:
    """Pace of one line.

    Args:
        a_second: requests on average.
        at_once: requests that do not wait.
        in_line: requests that may wait for their turn.
    """

    a_second: float
    at_once: int
    in_line: int


class RequestLines:
    """One line for each key, such as a network."""

    def __init__(self, pace: LinePace, clock: Callable[[], float]) -> None:
        self.pace = pace
        burst = float(pace.at_once + pace.in_line)
        self._buckets = TokenBuckets(rate=pace.a_second, burst=burst, clock=clock)

    def take(self, key: Hashable) -> float:
        """Take a place, and return the seconds until its turn; infinity where the line
        is full."""
        if self._buckets.take(key) > 0:
            return float("inf")
        return max(
            0.0, (self.pace.in_line - self._buckets.left(key)) / self.pace.a_second
        )
