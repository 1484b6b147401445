"""Token buckets: a rate, a burst, and a bounded number of keys."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

KEYS: Final = 10_000


class TokenBuckets:
    """One token bucket for each key.

    A full bucket needs no record, so the least recently used keys are dropped first if
    there are too many.
    """

    __slots__ = ("_buckets", "_clock", "_keys", "burst", "rate")

    def __init__(
        self, *, rate: float, burst: float, clock: Callable[[], float], keys: int = KEYS
    ) -> None:
        """Create the buckets, all full.

        Args:
            rate: tokens added each second.
            burst: tokens of a full bucket.
        """
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._keys = keys
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: Hashable, cost: float = 1.0) -> float:
        """Take `cost` tokens and return 0; if there are too few, return the seconds
        until there are enough.

        A refused request takes no tokens.
        """
        now = self._clock()
        tokens_left = self._left(key, now) - cost
        if tokens_left < 0:
            return -tokens_left / self.rate
        self._store_bucket(key, tokens_left, now)
        return 0.0

    def charge(self, key: Hashable, cost: float) -> None:
        """Take tokens for work that is already done, even if that leaves a debt."""
        now = self._clock()
        self._store_bucket(key, max(self._left(key, now) - cost, -self.burst), now)

    def used(self, key: Hashable) -> float:
        """Return the tokens that the key has taken and that are not back yet."""
        return self.burst - self.left(key)

    def left(self, key: Hashable) -> float:
        """Return how many tokens the key has now."""
        return self._left(key, self._clock())

    def _left(self, key: Hashable, now: float) -> float:
        bucket = self._buckets.get(key)
        if bucket is None:
            return self.burst
        tokens_left, refilled_at = bucket
        return min(self.burst, tokens_left + (now - refilled_at) * self.rate)

    def _store_bucket(self, key: Hashable, left: float, now: float) -> None:
        self._buckets[key] = (left, now)
        self._buckets.move_to_end(key)
        while len(self._buckets) > self._keys:
            self._buckets.popitem(last=False)
