"""Budget of retries: a share of the requests, and a constant rate for quiet services."""

from math import exp
from typing import Final

SHARE_WINDOW_SECONDS: Final = 10.0


class RetryBudget:
    """Budget that bounds retries, so that they cannot multiply an overload.

    Args:
        share: retries allowed for each request.
        per_second: retries allowed each second in addition.
    """

    __slots__ = ("_at", "_constant", "_per_second", "_share", "_shared")

    def __init__(self, share: float = 0.1, per_second: float = 10.0) -> None:
        if share < 0 or per_second < 0:
            raise ValueError(f"a budget is not negative: {share}, {per_second}")
        self._share = share
        self._per_second = per_second
        self._shared = 0.0  # retries earned by requests; they fade
        self._constant = max(per_second, 1.0) if per_second else 0.0
        self._at: float | None = None

    def note_request(self, now: float) -> None:
        """Count a request that is not a retry."""
        self._advance(now)
        self._shared += self._share

    def take(self, now: float) -> bool:
        """Take one retry if the budget has one. Return whether it was taken."""
        self._advance(now)
        if self._shared >= 1.0:
            self._shared -= 1.0
            return True
        if self._constant >= 1.0:
            self._constant -= 1.0
            return True
        return False

    def _advance(self, now: float) -> None:
        if self._at is None:
            self._at = now
        seconds = now - self._at
        if seconds <= 0:
            return
        self._at = now
        self._shared *= exp(-seconds / SHARE_WINDOW_SECONDS)
        if self._per_second:
            burst = max(self._per_second, 1.0)
            self._constant = min(burst, self._constant + seconds * self._per_second)
