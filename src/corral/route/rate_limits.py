"""Limits of a caller: requests and tokens a minute, and concurrent requests."""

from enum import StrEnum
from typing import Final, NamedTuple

MINUTE: Final = 60.0
CONCURRENCY_RETRY_SECONDS: Final = 1.0


class LimitName(StrEnum):
    """Name of the limit that a request exceeds."""

    REQUESTS_PER_MINUTE = "requests_per_minute"
    TOKENS_PER_MINUTE = "tokens_per_minute"
    CONCURRENCY = "concurrency"


class CallerLimitRefusal(NamedTuple):
    """Refusal of a request because of a limit of its caller."""

    limit: LimitName
    retry_after_seconds: float


class TokenBucket:
    """Bucket that is refilled at a constant rate up to its burst.

    An amount above the burst is taken from a full bucket, which then is in debt: the mean
    rate holds for requests of any size.
    """

    __slots__ = ("_at", "_level", "burst", "per_second")

    def __init__(self, per_second: float, burst: float) -> None:
        if min(per_second, burst) <= 0:
            raise ValueError(
                f"a bucket needs a rate and a burst: {per_second}, {burst}"
            )
        self.per_second = per_second
        self.burst = burst
        self._level = burst
        self._at: float | None = None

    def change(self, per_second: float, burst: float, now: float) -> None:
        """Go on with another rate and burst. The level stays as it is, at most full."""
        self._refill(now)
        self.per_second = per_second
        self.burst = burst
        self._level = min(burst, self._level)

    def wait_seconds(self, amount: float, now: float) -> float:
        """Return the seconds until this amount can be taken; 0: now."""
        self._refill(now)
        missing = min(amount, self.burst) - self._level
        return missing / self.per_second if missing > 1e-9 * self.burst else 0.0

    def _refill(self, now: float) -> None:
        if self._at is None:
            self._at = now
        elif now > self._at:
            refilled = self._level + (now - self._at) * self.per_second
            self._level = min(self.burst, refilled)
            self._at = now

    def take(self, amount: float) -> None:
        """Take the amount in any case; a negative one is given back."""
        self._level = min(self.burst, self._level - amount)


class CallerLimits:
    """Limits of one caller; None: no limit.

    Attributes:
        admitted: Requests that were admitted.
        tokens: Tokens that admitted requests have taken.
        refused: Requests that were refused, by the limit.
    """

    __slots__ = (
        "_concurrency",
        "_in_flight",
        "_requests",
        "_tokens",
        "admitted",
        "refused",
        "tokens",
    )

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        concurrency: int | None = None,
    ) -> None:
        self._requests = _bucket(requests_per_minute)
        self._tokens = _bucket(tokens_per_minute)
        self._concurrency = concurrency
        self._in_flight = 0
        self.admitted = 0
        self.tokens = 0.0
        self.refused: dict[LimitName, int] = {}

    def change(
        self,
        now: float,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        concurrency: int | None,
    ) -> None:
        """Go on with other limits. What was counted under the earlier ones still
        counts."""
        self._requests = _changed(self._requests, requests_per_minute, now)
        self._tokens = _changed(self._tokens, tokens_per_minute, now)
        self._concurrency = concurrency

    @property
    def in_flight(self) -> int:
        """Requests that were admitted and have not finished."""
        return self._in_flight

    def admit(self, now: float, tokens: float) -> CallerLimitRefusal | None:
        """Admit a request and count it, unless it exceeds a limit.

        Args:
            tokens: tokens that the request is expected to take.
        """
        refusal = self._refusal(now, tokens)
        if refusal is not None:
            self.refused[refusal.limit] = self.refused.get(refusal.limit, 0) + 1
            return refusal
        if self._tokens is not None:
            self._tokens.take(tokens)
        if self._requests is not None:
            self._requests.take(1.0)
        self._in_flight += 1
        self.admitted += 1
        self.tokens += tokens
        return None

    def _refusal(self, now: float, tokens: float) -> CallerLimitRefusal | None:
        if self._concurrency is not None and self._in_flight >= self._concurrency:
            return CallerLimitRefusal(LimitName.CONCURRENCY, CONCURRENCY_RETRY_SECONDS)
        if self._requests is not None:
            seconds = self._requests.wait_seconds(1.0, now)
            if seconds:
                return CallerLimitRefusal(LimitName.REQUESTS_PER_MINUTE, seconds)
        if self._tokens is not None:
            seconds = self._tokens.wait_seconds(tokens, now)
            if seconds:
                return CallerLimitRefusal(LimitName.TOKENS_PER_MINUTE, seconds)
        return None

    def finish(self, used_tokens: float, admitted_tokens: float) -> None:
        """Count the end of a request.

        Args:
            used_tokens: tokens that it took.
            admitted_tokens: tokens with which it was admitted.
        """
        self._in_flight = max(0, self._in_flight - 1)
        self.tokens += used_tokens - admitted_tokens
        if self._tokens is not None:
            self._tokens.take(used_tokens - admitted_tokens)


def _bucket(per_minute: float | None) -> TokenBucket | None:
    return None if per_minute is None else TokenBucket(per_minute / MINUTE, per_minute)


def _changed(
    bucket: TokenBucket | None, per_minute: float | None, now: float
) -> TokenBucket | None:
    if bucket is None or per_minute is None:
        return _bucket(per_minute)
    bucket.change(per_minute / MINUTE, per_minute, now)
    return bucket
