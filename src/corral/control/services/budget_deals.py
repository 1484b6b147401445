"""Budgets of tokens over several gateways: each gets a part of what is left, by what it
has lately used."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from corral.route.limit_parts import LimitNeed, deal_limit
from corral.wire.gateway_counters import CountersReport, ReportedBudget
from corral.wire.gateway_routes import BudgetEntry

SILENT_SECONDS: Final = 15.0  # of a gateway, after which it has no part any more
SHORT_SECONDS: Final = 5.0  # for which a refusal counts
RATE_SECONDS: Final = 10.0  # over which the use of a budget is averaged
# a part that differs by less than this share is not worth new routes
STEADY_SHARE: Final = 0.2
STEADY_SHARE_OF_LIMIT: Final = 0.01
LEAST_CHANGE: Final = 1.0  # token
FIRST_SHARE: Final = 0.01  # of what is left, for the second until a gateway has a part
UNKNOWN_GATEWAY: Final = ""  # key of the parts of a gateway that has none yet
BudgetParts = Mapping[str, tuple[BudgetEntry, ...]]  # by gateway


class BudgetState(NamedTuple):
    """A budget, and what all gateways together have used of it in its period."""

    limit: int
    used: int
    renews_at: float

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


@dataclass(slots=True)
class _GatewayUse:
    """Use of one budget at one gateway, over all of its processes."""

    by_process: dict[str, ReportedBudget] = field(default_factory=dict)
    at: float = 0.0
    per_second: float = 0.0
    short_at: float = float("-inf")

    def take(self, counts: dict[str, ReportedBudget], now: float) -> None:
        nothing = ReportedBudget()
        used = 0
        for process, count in counts.items():
            before = self.by_process.get(process, count)
            used += max(0, count.tokens - before.tokens)
            if count.refused > self.by_process.get(process, nothing).refused:
                self.short_at = now
        seconds = now - self.at
        if self.by_process and seconds > 0:
            weight = min(1.0, seconds / RATE_SECONDS)
            self.per_second += weight * (used / seconds - self.per_second)
        self.by_process, self.at = counts, now

    @property
    def tokens(self) -> int:
        return sum(count.tokens for count in self.by_process.values())


class _Granted(NamedTuple):
    """Part as it was granted, and the tokens of the gateway at that time."""

    state: BudgetState
    part: float
    tokens: int
    entry: BudgetEntry


@dataclass(slots=True)
class BudgetDeals:
    """Parts of all budgets while one head leads."""

    _seen: dict[str, float] = field(default_factory=dict)  # by gateway
    _uses: dict[tuple[str, str], _GatewayUse] = field(default_factory=dict)
    _granted: dict[str, dict[str, _Granted]] = field(default_factory=dict)

    def meet(self, gateway: str, now: float) -> None:
        """Note that a gateway takes routes: it gets parts from now on."""
        self._seen[gateway] = now

    def take(self, gateway: str, report: CountersReport, now: float) -> None:
        """Take the use that a gateway reports. `now`: seconds of the serving clock."""
        self._seen[gateway] = now
        counts: dict[str, dict[str, ReportedBudget]] = {}
        for process in report.processes:
            for name, count in process.budgets.items():
                counts.setdefault(name, {})[process.process] = count
        for name, by_process in counts.items():
            use = self._uses.setdefault((gateway, name), _GatewayUse(at=now))
            use.take(by_process, now)

    def deal(self, budgets: Mapping[str, BudgetState], now: float) -> BudgetParts:
        """Return the parts of each gateway, and under UNKNOWN_GATEWAY those of one that
        has just begun. A part stays as it was granted while it is near what would be
        granted now."""
        for gateway, at in list(self._seen.items()):
            if now - at > SILENT_SECONDS:
                del self._seen[gateway]
        self._uses = {
            key: use for key, use in self._uses.items() if key[0] in self._seen
        }
        gateways = sorted(self._seen)
        dealt: dict[str, list[BudgetEntry]] = {gateway: [] for gateway in gateways}
        for name, state in sorted(budgets.items()):
            parts = self._parts(name, state, gateways, now)
            if not self._is_steady(name, state, parts, now):
                self._granted[name] = {
                    gateway: self._grant(gateway, name, state, part)
                    for gateway, part in parts.items()
                }
            for gateway, granted in self._granted[name].items():
                dealt[gateway].append(granted.entry)
        self._granted = {name: self._granted[name] for name in budgets}
        first = tuple(
            BudgetEntry(
                name=name,
                part=round(FIRST_SHARE * state.left),
                renews_at=state.renews_at,
                limit=state.limit,
            )
            for name, state in sorted(budgets.items())
        )
        parts_by_gateway = {gateway: tuple(rows) for gateway, rows in dealt.items()}
        return {UNKNOWN_GATEWAY: first, **parts_by_gateway} if budgets else {}

    def _parts(
        self, name: str, state: BudgetState, gateways: Iterable[str], now: float
    ) -> dict[str, float]:
        """Return the parts of what is left. What a gateway uses in RATE_SECONDS is its
        need; the rest is shared."""
        needs = {}
        for gateway in gateways:
            use = self._uses.get((gateway, name), _GatewayUse())
            needs[gateway] = LimitNeed(
                used=use.per_second * RATE_SECONDS,
                is_short=now - use.short_at < SHORT_SECONDS,
            )
        return deal_limit(float(state.left), needs)

    def _grant(
        self, gateway: str, name: str, state: BudgetState, part: float
    ) -> _Granted:
        use = self._uses.get((gateway, name), _GatewayUse())
        seen = {process: count.tokens for process, count in use.by_process.items()}
        entry = BudgetEntry(
            name=name,
            part=round(part),
            renews_at=state.renews_at,
            seen=seen,
            limit=state.limit,
            used=state.used,
        )
        return _Granted(state, part, use.tokens, entry)

    def _is_steady(
        self, name: str, state: BudgetState, parts: Mapping[str, float], now: float
    ) -> bool:
        """Return whether the parts stay as they are: what each gateway has left of its
        own is near its new part."""
        granted = self._granted.get(name)
        if granted is None or granted.keys() != parts.keys():
            return False
        for gateway, part in parts.items():
            earlier = granted[gateway]
            if (earlier.state.limit, earlier.state.renews_at) != (
                state.limit,
                state.renews_at,
            ):
                return False
            use = self._uses.get((gateway, name), _GatewayUse())
            remaining = max(0.0, earlier.part - max(0, use.tokens - earlier.tokens))
            is_short = now - use.short_at < SHORT_SECONDS
            slack = min(STEADY_SHARE * remaining, STEADY_SHARE_OF_LIMIT * state.limit)
            if abs(part - remaining) > max(0.0 if is_short else slack, LEAST_CHANGE):
                return False
        return True
