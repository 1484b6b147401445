"""How many requests of a batch are sent at once: more while the service answers as fast
as before, fewer when it is overloaded. No I/O."""

from collections import deque
from math import inf
from statistics import median
from typing import Final

FIRST_LIMIT: Final = 4
USUAL_CONCURRENCY: Final = 64
HURRIED_CONCURRENCY: Final = 512  # while the batch is behind its deadline
STEADY_RATIO: Final = 1.5  # of the latency without load, up to which the limit grows
SLOW_RATIO: Final = 4.0  # from which it shrinks
FAST_GROWTH: Final = 1.5  # until the service is loaded for the first time
SLOW_GROWTH: Final = 1.05
SHRINKING: Final = 0.8
LEAST_ANSWERS: Final = 8  # in a window
RATE_SECONDS: Final = 60.0
RATE_MARGIN: Final = 1.1


class BatchConcurrency:
    """Limit of the requests under way.

    Args:
        most: Limit that is never exceeded; None: the usual one, and more in a hurry.

    Attributes:
        is_behind: Whether the batch is too slow for its deadline. Then the limit grows
            also while answers become slower; only an overloaded service lowers it.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._limit = float(min(FIRST_LIMIT, most or FIRST_LIMIT))
        self._growth = FAST_GROWTH
        self._latency = inf  # median of a window without load, in seconds
        self._seconds: list[float] = []
        self._changed_at = -inf
        self.is_behind = False

    @property
    def value(self) -> int:
        """Most requests under way."""
        return max(1, int(self._limit))

    @property
    def ceiling(self) -> int:
        """Value that the limit does not exceed now."""
        if self._most is not None:
            return self._most
        return HURRIED_CONCURRENCY if self.is_behind else USUAL_CONCURRENCY

    def answered(self, sent_at: float, now: float) -> None:
        """Count an answer. Those to requests from before the last change say nothing
        about the present limit."""
        if sent_at < self._changed_at:
            return
        self._seconds.append(now - sent_at)
        if len(self._seconds) >= max(LEAST_ANSWERS, self.value):
            self._judge(median(self._seconds), now)

    def refused(self, sent_at: float, now: float) -> None:
        """Halve the limit, because the service is overloaded. Requests that were sent
        before the last change have been counted by it."""
        if sent_at < self._changed_at:
            return
        self._growth = SLOW_GROWTH
        self._change(self._limit / 2, now)

    def _judge(self, seconds: float, now: float) -> None:
        # with few requests the service has no load of this batch: that is the measure
        is_least = self.value <= FIRST_LIMIT
        self._latency = seconds if is_least else min(seconds, self._latency)
        ratio = seconds / self._latency if self._latency else 1.0
        if ratio <= STEADY_RATIO or self.is_behind:
            self._change(max(self._limit * self._growth, self._limit + 1), now)
        elif ratio <= SLOW_RATIO:
            self._growth = SLOW_GROWTH
            self._seconds.clear()
        else:
            self._growth = SLOW_GROWTH
            self._change(self._limit * SHRINKING, now)

    def _change(self, limit: float, now: float) -> None:
        self._limit = min(max(1.0, limit), float(self.ceiling))
        self._changed_at = now
        self._seconds.clear()


class LineRate:
    """Lines a second over the last minute."""

    def __init__(self, now: float, finished: int) -> None:
        self._points = deque([(now, finished)])

    def add(self, now: float, finished: int) -> None:
        self._points.append((now, finished))
        while len(self._points) > 2 and self._points[1][0] <= now - RATE_SECONDS:
            self._points.popleft()

    @property
    def lines_per_second(self) -> float:
        (begin, before), (end, after) = self._points[0], self._points[-1]
        return (after - before) / (end - begin) if end > begin else 0.0


def is_too_slow(left: int, lines_per_second: float, seconds_left: float) -> bool:
    """Return whether the lines that are left need more than the time that is left."""
    return left > 0 and lines_per_second * seconds_left < left * RATE_MARGIN


def retry_seconds(tries: int, least: float, most: float, chance: float) -> float:
    """Return the pause before another try: it doubles with each try.

    Args:
        tries: Tries so far, from 1.
        chance: From 0 to 1; it spreads the retries of many lines.
    """
    return min(most, least * 2.0 ** min(tries - 1, 30)) * (0.5 + 0.5 * chance)
