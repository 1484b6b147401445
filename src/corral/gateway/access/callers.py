"""Callers: keys by their hashes, and the limits of each caller or group of callers."""

from hashlib import sha256
from typing import Final

from corral.gateway.openai_errors import GatewayCode, GatewayRefusal
from corral.route.rate_limits import CallerLimits
from corral.wire.gateway_routes import CallerEntry

CACHED_KEYS: Final = 10_000
ANYONE: Final = CallerEntry(name="", key_sha256="")
# requests and tokens a minute, and concurrent requests
LimitParts = tuple[float | None, float | None, int | None]


class GatewayCaller:
    """One caller and what its limits, which its group shares, have counted."""

    __slots__ = ("entry", "limits", "name", "priority")

    def __init__(self, entry: CallerEntry, limits: CallerLimits | None = None) -> None:
        self.entry = entry
        self.name = entry.name
        self.priority = entry.priority
        self.limits = limits

    @property
    def owner(self) -> str:
        """User of the caller, whose name is USER/TOKEN."""
        return self.name.partition("/")[0]

    @property
    def is_batch(self) -> bool:
        """Whether its requests are those of a batch, which no user waits for."""
        return self.priority == "batch"

    def with_key_budget(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return these names of budgets with that of the caller's key, if it has one."""
        of_key = self.entry.key_budget
        return names if of_key is None else (of_key, *names)

    def admit(self, now: float, tokens: int) -> GatewayRefusal | None:
        """Admit a request of about this number of tokens, or say which limit forbids
        it."""
        if self.limits is None:
            return None
        refusal = self.limits.admit(now, tokens)
        if refusal is None:
            return None
        whose = "this key" if self.entry.group is None else self.entry.group
        return GatewayRefusal(
            GatewayCode.RATE_LIMITED,
            f"the limit {refusal.limit.value} of {whose} is reached",
            retry_after=refusal.retry_after_seconds,
        )

    def finish(self, used: float, admitted: float) -> None:
        """Count the end of a request.

        Args:
            used: Tokens that it took.
            admitted: Tokens with which it was admitted.
        """
        if self.limits is not None:
            self.limits.finish(used, admitted)


def limit_parts(entry: CallerEntry, share: float) -> LimitParts:
    """Return the part of each limit that one process grants."""
    requests, tokens = entry.requests_per_minute, entry.tokens_per_minute
    concurrency = entry.concurrency
    return (
        None if requests is None else requests * share,
        None if tokens is None else tokens * share,
        concurrency and max(1, round(concurrency * share)),
    )


class CallerDirectory:
    """Callers by key.

    Args:
        share: Part of each limit that this process grants; workers divide it.
    """

    __slots__ = ("_by_hash", "_by_key", "_limits", "anyone", "is_open", "share")

    def __init__(self, share: float = 1.0) -> None:
        self.share = share
        self.is_open = False
        self.anyone = GatewayCaller(ANYONE)
        self._by_hash: dict[str, GatewayCaller] = {}
        self._by_key: dict[bytes, GatewayCaller] = {}
        self._limits: dict[str, tuple[CallerLimits, LimitParts]] = {}

    @property
    def limits(self) -> dict[str, CallerLimits]:
        """Return what the limits have counted, by group."""
        return {
            caller.entry.group: caller.limits
            for caller in self._by_hash.values()
            if caller.entry.group is not None and caller.limits is not None
        }

    def update(
        self, entries: tuple[CallerEntry, ...], now: float, *, is_open: bool
    ) -> None:
        """Take the callers of a new state. Limits keep their counts, also where they
        change."""
        previous = self._by_hash
        previous_limits = self._limits
        self._by_hash = {}
        self._limits = {}
        for entry in entries:
            limits = self._limits_of(entry, previous_limits, now)
            caller = previous.get(entry.key_sha256)
            if caller is None or caller.entry != entry or caller.limits is not limits:
                caller = GatewayCaller(entry, limits)
            self._by_hash[entry.key_sha256] = caller
        self._by_key.clear()
        self.is_open = is_open

    def _limits_of(
        self,
        entry: CallerEntry,
        previous: dict[str, tuple[CallerLimits, LimitParts]],
        now: float,
    ) -> CallerLimits | None:
        """Return the limits of a caller's group, or of itself."""
        parts = limit_parts(entry, self.share)
        if parts == (None, None, None):
            return None
        key = f"key {entry.key_sha256}" if entry.group is None else entry.group
        if key not in self._limits:
            limits, earlier = previous.get(key, (None, None))
            if limits is None:
                limits = CallerLimits(*parts)
            elif earlier != parts:
                limits.change(now, *parts)
            self._limits[key] = (limits, parts)
        return self._limits[key][0]

    def holds(self, caller: GatewayCaller) -> bool:
        """Return whether the present routes have this caller."""
        if caller is self.anyone:
            return self.is_open
        return caller.entry.key_sha256 in self._by_hash

    def find(self, key: bytes | None) -> GatewayCaller | None:
        """Return the caller with this key; None if no caller has it."""
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
