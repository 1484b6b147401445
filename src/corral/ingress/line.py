"""Queues for requests: a few requests are served at once, and later ones wait until it
is their turn."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from corral.ingress.buckets import TokenBuckets


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePace:
    """Limits of one request queue.

    Args:
        a_second: average number of requests that are served in a second.
        at_once: requests that are served without a wait.
        in_line: requests that may wait in the queue.
    """

    a_second: float
    at_once: int
    in_line: int


class RequestLines:
    """One queue for each key, such as a network."""

    def __init__(self, pace: LinePace, clock: Callable[[], float]) -> None:
        self.pace = pace
        burst = float(pace.at_once + pace.in_line)
        self._buckets = TokenBuckets(rate=pace.a_second, burst=burst, clock=clock)

    def take(self, key: Hashable) -> float:
        """Add a request to the queue of the key. Return the seconds until it may be
        served; infinity if the queue is full."""
        if self._buckets.take(key) > 0:
            return float("inf")
        return max(
            0.0, (self.pace.in_line - self._buckets.left(key)) / self.pace.a_second
        )
