"""Failed authentications: a network may fail a few times, and a flood of failures costs
little."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from corral.api.errors import TooMany
from corral.domain.errors import Unauthorised
from corral.ingress.addresses import network_of
from corral.ingress.buckets import TokenBuckets

FAILURES: Final = 20  # of one network at once; then one a second
RATE: Final = 1.0
RENEW_SECONDS: Final = 1.0
# before a refusal: who waits for the answer fails once a second
HOLD_SECONDS: Final = 1.0


class FailureLimits:
    """Rate limit of failed authentications for each network, by token buckets.

    A valid token is always accepted, since many clients may share an address.
    Therefore, after too many failures, a network is refused only those tokens whose
    digests the store does not have. `digests` lists the store's digests, and is called
    at most once a second.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        digests: Callable[[], Awaitable[Collection[str]]],
    ) -> None:
        self._clock = clock
        self._buckets = TokenBuckets(rate=RATE, burst=FAILURES, clock=clock)
        self._digests = digests
        self._known: frozenset[str] = frozenset()
        self._known_at = float("-inf")
        self._reading = asyncio.Lock()
        self.refused = 0

    def note(
        self, address: str, error: Unauthorised | TooMany
    ) -> Unauthorised | TooMany:
        """Count a failure, and return the error to answer with: the given one, or
        TooMany after too many failures."""
        if isinstance(error, TooMany):
            return error
        seconds = self._buckets.take(network_of(address))
        return error if seconds == 0 else self._too_many(seconds)

    async def check(self, address: str, digest: str) -> None:
        """Check that the store has a token with this digest, if the address's network
        has failed too often.

        Raises: TooMany if not; StoreTrouble.
        """
        network = network_of(address)
        if self._buckets.left(network) >= 1.0 or digest in self._known:
            return
        await self._reload_digests()
        if digest not in self._known:
            raise self._too_many(1.0 - self._buckets.left(network))

    async def _reload_digests(self) -> None:
        async with self._reading:
            now = self._clock()
            if now - self._known_at >= RENEW_SECONDS:
                self._known = frozenset(await self._digests())
                self._known_at = now

    def _too_many(self, seconds: float) -> TooMany:
        self.refused += 1
        return TooMany(
            f"more than {FAILURES} requests from this address had an invalid token; one more "
            f"request is checked every {1 / RATE:.0f} s",
            hint=f"wait {max(1, round(seconds))} s, then check your token: corral status",
            retry_seconds=seconds,
        )
