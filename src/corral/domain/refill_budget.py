"""A budget that refills over time: it allows a burst at once, then a constant rate.
Pure functions."""

from dataclasses import dataclass


@dataclass(slots=True)
class RefillBudget:
    """Budget to which `per_second` is refilled, up to `burst`. Moments may be of any
    clock that only rises."""

    per_second: float
    burst: float
    _left: float | None = None
    _at: float = 0.0

    def take(self, amount: float, now: float) -> bool:
        """Take the amount if the budget holds it. Return whether it was taken; if not,
        the budget is unchanged."""
        self._refill(now)
        assert self._left is not None
        if amount > self._left:
            return False
        self._left -= amount
        return True

    def spend(self, amount: float, now: float) -> float:
        """Take the amount in any case, even if the budget becomes negative. Return the
        seconds until it is no longer negative; 0 if it is not."""
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
