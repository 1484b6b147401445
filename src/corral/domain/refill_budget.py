"""A budget that refills with time: a burst at once, then so much a second. Pure."""

from dataclasses import dataclass


@dataclass(slots=True)
class RefillBudget:
    """`per_second` are given back up to `burst`. Moments are of any clock that only
    rises."""

    per_second: float
    burst: float
    _left: float | None = None
    _at: float = 0.0

    def take(self, amount: float, now: float) -> bool:
        """Take the amount if it is there; False takes nothing."""
        self._refill(now)
        assert self._left is not None
        if amount > self._left:
            return False
        self._left -= amount
        return True

    def spend(self, amount: float, now: float) -> float:
        """Take the amount in any case. Return the seconds until the debt is paid; 0 for
        none."""
        self._refill(now)
        assert self._left is not None
        self._left -= amount
        return max(0.0, -self._left / self.per_second)

    def _refill(self, now: float) -> None:
        if self._left is None:
            self._left = self.burst
        else:
            refilled = max(0.0, now - self._at) * self.per_second
            self._left = min(self.burst, self._left + refilled)
        self._at = now
