"""Callers: keys by their hashes, and each caller's limits."""

from hashlib import sha256
from typing import Final

from corral.gateway.openai_errors import GatewayCode, GatewayRefusal
from corral.route.rate_limits import CallerLimits
from corral.wire.gateway_routes import CallerEntry

CACHED_KEYS: Final = 10_000
ANYONE: Final = CallerEntry(name="", key_sha256="")


class GatewayCaller:
    """One caller and what its limits have counted."""

    __slots__ = ("entry", "limits", "name", "priority")

    def __init__(self, entry: CallerEntry, share: float) -> None:
        self.entry = entry
        self.name = entry.name
        self.priority = entry.priority
        self.limits: CallerLimits | None = None
        limits = (entry.requests_per_minute, entry.tokens_per_minute, entry.concurrency)
        if limits != (None, None, None):
            self.limits = CallerLimits(*(_part(limit, share) for limit in limits))

    def admit(self, now: float, tokens: int) -> GatewayRefusal | None:
        """Admit a request of about this number of tokens, or say which limit forbids
        it."""
        if self.limits is None:
            return None
        refusal = self.limits.admit(now, tokens)
        if refusal is None:
            return None
        return GatewayRefusal(
            GatewayCode.RATE_LIMITED,
            f"the limit {refusal.limit.value} of this key is reached",
            retry_after=refusal.retry_after_seconds,
        )


def _part(limit: int | None, share: float) -> int | None:
    return None if limit is None else max(1, round(limit * share))


class CallerDirectory:
    """Callers by key.

    Args:
        share: Part of each limit that this process grants; workers divide it.
    """

    __slots__ = ("_by_hash", "_by_key", "anyone", "is_open", "share")

    def __init__(self, share: float = 1.0) -> None:
        self.share = share
        self.is_open = False
        self.anyone = GatewayCaller(ANYONE, share)
        self._by_hash: dict[str, GatewayCaller] = {}
        self._by_key: dict[bytes, GatewayCaller] = {}

    def update(self, entries: tuple[CallerEntry, ...], *, is_open: bool) -> None:
        """Take the callers of a new state; unchanged ones keep their counts."""
        previous = self._by_hash
        self._by_hash = {}
        for entry in entries:
            caller = previous.get(entry.key_sha256)
            if caller is None or caller.entry != entry:
                caller = GatewayCaller(entry, self.share)
            self._by_hash[entry.key_sha256] = caller
        self._by_key.clear()
        self.is_open = is_open

    def holds(self, caller: GatewayCaller) -> bool:
        """Return whether the present routes have this caller."""
        if caller is self.anyone:
            return self.is_open
        return caller.entry.key_sha256 in self._by_hash

    def find(self, key: bytes | None) -> GatewayCaller | None:
        """Return the caller with this key; None if there is none."""
        if key is None:
            return self.anyone if self.is_open else None
        caller = self._by_key.get(key)
        if caller is not None:
            return caller
        caller = self._by_hash.get(sha256(key).hexdigest())
        if caller is None:
            return self.anyone if self.is_open else None
        if len(self._by_key) >= CACHED_KEYS:
            self._by_key.clear()
        self._by_key[key] = caller
        return caller
