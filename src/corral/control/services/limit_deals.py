"""Limits of users over several gateways: each gateway gets a part of each limit, by what
it has lately used."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from corral.route.limit_parts import (
    LimitNeed,
    deal_limit,
    granted_now,
    whole_parts,
)
from corral.wire.gateway_counters import CountersReport, ReportedCaller
from corral.wire.gateway_routes import CallerEntry

# a gateway that was silent for this long has no part any more
SILENT_SECONDS: Final = 15.0
SHORT_SECONDS: Final = 5.0  # for which a refusal counts
RATE_SECONDS: Final = 5.0  # over which the use of a limit is averaged
MINUTE: Final = 60.0
# in which a gateway takes a new part, and reports under it
SETTLE_SECONDS: Final = 4.0
# a change of parts below this share of the limit is not worth new routes
STEADY_SHARE: Final = 0.02
FIRST_SHARE: Final = 0.01


class DealtLimits(NamedTuple):
    """Parts of a user's limits that one gateway grants; None: no limit."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    concurrency: int | None = None


Dealt = Mapping[str, Mapping[str, DealtLimits]]  # by gateway and group


@dataclass(slots=True)
class _Use:
    """Use of one group at one gateway, over all of its processes."""

    totals: dict[str, ReportedCaller] = field(default_factory=dict)  # by process
    at: float = 0.0
    requests_per_minute: float = 0.0
    tokens_per_minute: float = 0.0
    in_flight: int = 0
    refused_at: dict[str, float] = field(default_factory=dict)  # by limit

    def take(self, totals: dict[str, ReportedCaller], now: float) -> None:
        requests = tokens = 0
        for process, caller in totals.items():
            before = self.totals.get(process, ReportedCaller())
            # a process that counts from zero again has only new ones
            is_reset = caller.requests < before.requests
            before = ReportedCaller() if is_reset else before
            requests += caller.requests - before.requests
            tokens += max(0, caller.tokens - before.tokens)
            for limit, count in caller.refused.items():
                if count > before.refused.get(limit, 0):
                    self.refused_at[limit] = now
        seconds = now - self.at
        if self.totals and seconds > 0:
            weight = min(1.0, seconds / RATE_SECONDS)
            factor = MINUTE / seconds
            self.requests_per_minute += weight * (
                requests * factor - self.requests_per_minute
            )
            self.tokens_per_minute += weight * (
                tokens * factor - self.tokens_per_minute
            )
        self.totals, self.at = totals, now
        self.in_flight = sum(caller.in_flight for caller in totals.values())

    def need(self, limit: str, used: float, now: float) -> LimitNeed:
        refused_at = self.refused_at.get(limit, float("-inf"))
        return LimitNeed(used=used, is_short=now - refused_at < SHORT_SECONDS)

    def is_short(self, now: float) -> bool:
        """Return whether requests were refused lately, because of any limit."""
        return any(now - at < SHORT_SECONDS for at in self.refused_at.values())


@dataclass(slots=True)
class LimitDeals:
    """Parts of the limits of all users while one head leads. With one gateway, it has
    each limit as a whole."""

    _seen: dict[str, float] = field(default_factory=dict)  # by gateway
    _uses: dict[str, dict[str, _Use]] = field(default_factory=dict)
    _dealt: dict[str, dict[str, DealtLimits]] = field(default_factory=dict)
    _limits: dict[str, DealtLimits] = field(default_factory=dict)  # as dealt, by group
    _alone: tuple[str, float] | None = (
        None  # the last one to have whole limits, and when
    )
    # parts of concurrent requests that were dealt lately, by group and gateway
    _earlier: dict[tuple[str, str], list[tuple[float, int]]] = field(
        default_factory=dict
    )

    def meet(self, gateway: str, now: float) -> None:
        """Note that a gateway takes routes: it gets parts from now on."""
        self._seen[gateway] = now

    def take(self, gateway: str, report: CountersReport, now: float) -> None:
        """Take the use that a gateway reports. `now`: seconds of the serving clock."""
        self._seen[gateway] = now
        uses = self._uses.setdefault(gateway, {})
        totals: dict[str, dict[str, ReportedCaller]] = {}
        for process in report.processes:
            for group, caller in process.callers.items():
                totals.setdefault(group, {})[process.process] = caller
        for group, by_process in totals.items():
            uses.setdefault(group, _Use(at=now)).take(by_process, now)

    def deal(self, callers: Iterable[CallerEntry], now: float) -> Dealt:
        """Return the parts of all gateways. One that is alone has no parts: it grants the
        whole limits."""
        for gateway, at in list(self._seen.items()):
            if now - at > SILENT_SECONDS:
                del self._seen[gateway]
                self._uses.pop(gateway, None)
        if len(self._seen) < 2:
            self._dealt, self._limits = {}, {}
            self._earlier.clear()
            self._alone = next(((gateway, now) for gateway in self._seen), self._alone)
            return {gateway: {} for gateway in self._seen}
        limited = {
            caller.group: caller
            for caller in callers
            if caller.group is not None and limits_of(caller) != DealtLimits()
        }
        dealt: dict[str, dict[str, DealtLimits]] = {
            gateway: {} for gateway in sorted(self._seen)
        }
        for group, caller in sorted(limited.items()):
            limits = limits_of(caller)
            uses = {
                gateway: self._uses.get(gateway, {}).get(group, _Use())
                for gateway in dealt
            }
            fresh = self._deal_group(group, limits, uses, now)
            if self._is_steady(group, limits, fresh, uses, now):
                fresh = {gateway: self._dealt[gateway][group] for gateway in uses}
            self._limits[group] = limits
            for gateway, parts in fresh.items():
                dealt[gateway][group] = parts
                if parts.concurrency is not None:
                    earlier = self._earlier.setdefault((group, gateway), [])
                    earlier.append((now, parts.concurrency))
        self._dealt = dealt
        return dealt

    def _is_steady(
        self,
        group: str,
        limits: DealtLimits,
        fresh: Mapping[str, DealtLimits],
        uses: Mapping[str, _Use],
        now: float,
    ) -> bool:
        """Return whether the earlier parts are kept: no gateway is short of a limit, or
        none would get much more or less."""
        if self._limits.get(group) != limits or self._dealt.keys() != uses.keys():
            return False
        earlier = {gateway: self._dealt[gateway].get(group) for gateway in uses}
        if None in earlier.values():
            return False
        is_whole = limits.concurrency is None or limits.concurrency == sum(
            (parts and parts.concurrency) or 0 for parts in earlier.values()
        )
        is_short = any(use.is_short(now) for use in uses.values())
        if is_whole and not is_short:
            return True
        return all(
            _is_near(fresh[gateway], earlier[gateway], limits) for gateway in uses
        )

    def _deal_group(
        self,
        group: str,
        limits: DealtLimits,
        uses: Mapping[str, _Use],
        now: float,
    ) -> dict[str, DealtLimits]:
        requests = _parts(
            limits.requests_per_minute,
            {
                gateway: use.need("requests_per_minute", use.requests_per_minute, now)
                for gateway, use in uses.items()
            },
        )
        tokens = _parts(
            limits.tokens_per_minute,
            {
                gateway: use.need("tokens_per_minute", use.tokens_per_minute, now)
                for gateway, use in uses.items()
            },
        )
        concurrency = self._concurrency(group, limits.concurrency, uses, now)
        return {
            gateway: DealtLimits(
                requests.get(gateway), tokens.get(gateway), concurrency.get(gateway)
            )
            for gateway in uses
        }

    def _concurrency(
        self, group: str, limit: int | None, uses: Mapping[str, _Use], now: float
    ) -> dict[str, int]:
        """Return the parts of the concurrent requests. What a gateway may still have
        under way under an earlier part is not granted to another one."""
        if limit is None:
            return {}
        needs = {
            gateway: use.need("concurrency", float(use.in_flight), now)
            for gateway, use in uses.items()
        }
        goal = whole_parts(deal_limit(float(limit), needs))
        occupied: dict[str, int] = {}
        for gateway, use in uses.items():
            earlier = self._earlier.setdefault((group, gateway), [])
            earlier[:] = [
                (at, part) for at, part in earlier if now - at < SETTLE_SECONDS
            ]
            occupied[gateway] = max([use.in_flight, *(part for _, part in earlier)])
        if self._alone is not None and now - self._alone[1] < SETTLE_SECONDS:
            occupied[self._alone[0]] = limit
        return granted_now(goal, occupied, limit)


def limits_of(caller: CallerEntry) -> DealtLimits:
    """Return the whole limits of a caller."""
    return DealtLimits(
        caller.requests_per_minute, caller.tokens_per_minute, caller.concurrency
    )


def with_parts(
    callers: Iterable[CallerEntry], parts: Mapping[str, DealtLimits] | None
) -> tuple[CallerEntry, ...]:
    """Return the callers with the parts of their limits that one gateway grants. A group
    without parts has its whole limits.

    Args:
        parts: Parts by group; None: of a gateway that has none yet.
    """
    return tuple(_with_parts(caller, parts) for caller in callers)


def _with_parts(
    caller: CallerEntry, parts: Mapping[str, DealtLimits] | None
) -> CallerEntry:
    if caller.group is None:
        return caller
    limits = limits_of(caller)
    dealt = _first_parts(limits) if parts is None else parts.get(caller.group, limits)
    if dealt == limits:
        return caller
    return msgspec.structs.replace(caller, **dealt._asdict())


def _first_parts(limits: DealtLimits) -> DealtLimits:
    """Return small parts for the second until a new gateway gets its own."""
    requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
    return DealtLimits(
        None if requests is None else requests * FIRST_SHARE,
        None if tokens is None else tokens * FIRST_SHARE,
        None if limits.concurrency is None else 0,
    )


def _parts(limit: float | None, needs: Mapping[str, LimitNeed]) -> dict[str, float]:
    return {} if limit is None else deal_limit(limit, needs)


def _is_near(
    fresh: DealtLimits, earlier: DealtLimits | None, limits: DealtLimits
) -> bool:
    """Return whether no part of a gateway has changed enough for new routes."""
    if earlier is None or fresh.concurrency != earlier.concurrency:
        return False
    for new, old, limit in zip(fresh[:2], earlier[:2], limits[:2], strict=True):
        if (new is None) != (old is None):
            return False
        if new is None or old is None or limit is None:
            continue
        if abs(new - old) > STEADY_SHARE * limit:
            return False
    return True
