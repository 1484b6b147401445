"""Limits of a user hold over several gateways together."""

from dataclasses import dataclass, field

import pytest

from corral.control.services.limit_deals import (
    FIRST_SHARE,
    SILENT_SECONDS,
    LimitDeals,
    with_parts,
)
from corral.gateway.access.callers import CallerDirectory
from corral.gateway.counting.gateway_metrics import CallerUse
from corral.wire.gateway_counters import (
    CountersReport,
    ReportedCaller,
    ReportedProcess,
)
from corral.wire.gateway_routes import CallerEntry

KEY = "0" * 64
SECOND = 1.0


def caller(**limits: float) -> CallerEntry:
    return CallerEntry(name="ann/t1", key_sha256=KEY, group="ann", **limits)  # type: ignore[arg-type]


@dataclass
class Gateway:
    """A gateway that sends its counters and takes its routes each second."""

    name: str
    directory: CallerDirectory = field(default_factory=CallerDirectory)
    open: list[float] = field(default_factory=list)  # ends of requests under way
    admitted: int = 0

    def report(self) -> CountersReport:
        callers = {
            group: ReportedCaller(
                used.in_flight, used.requests, used.tokens, used.refused
            )
            for group, limits in self.directory.limits.items()
            for used in [CallerUse.of(limits)]
        }
        process = ReportedProcess(process=f"process-{self.name}", callers=callers)
        return CountersReport(processes=(process,))

    def send(self, now: float, *, tokens: int = 0, seconds: float = 0.0) -> None:
        (entry,) = self.directory._by_hash.values()
        assert entry.limits is not None
        if entry.limits.admit(now, tokens) is None:
            self.admitted += 1
            self.open.append(now + seconds)

    def end_requests(self, now: float, tokens: int = 0) -> None:
        (entry,) = self.directory._by_hash.values()
        assert entry.limits is not None
        for _ in [end for end in self.open if end <= now]:
            entry.limits.finish(tokens, tokens)
        self.open = [end for end in self.open if end > now]


class Play:
    """A head and its gateways."""

    def __init__(self, entry: CallerEntry, *names: str) -> None:
        self.entry = entry
        self.deals = LimitDeals()
        self.now = 0.0
        self.changes = 0
        self.dealt: object = None
        self.gateways = [Gateway(name) for name in names]
        for gateway in self.gateways:
            self.deals.meet(gateway.name, 0.0)
        self.exchange()

    def exchange(self) -> None:
        for gateway in self.gateways:
            self.deals.take(gateway.name, gateway.report(), self.now)
        dealt = self.deals.deal([self.entry], self.now)
        self.changes += dealt != self.dealt
        self.dealt = dealt
        for gateway in self.gateways:
            callers = with_parts([self.entry], dealt.get(gateway.name))
            gateway.directory.update(callers, self.now, is_open=False)

    def run(
        self, seconds: int, rates: list[float], *, tokens: int = 0, lasting: float = 0.0
    ) -> list[int]:
        """Send requests at these rates a second; return how many were admitted."""
        before = [gateway.admitted for gateway in self.gateways]
        steps = 20
        credits = [0.0] * len(rates)
        for _ in range(seconds):
            for _ in range(steps):
                self.now += SECOND / steps
                for place, gateway in enumerate(self.gateways):
                    gateway.end_requests(self.now, tokens)
                    credits[place] += rates[place] / steps
                    while credits[place] >= 1:
                        credits[place] -= 1
                        gateway.send(self.now, tokens=tokens, seconds=lasting)
            self.exchange()
        return [
            gateway.admitted - count
            for gateway, count in zip(self.gateways, before, strict=True)
        ]


@pytest.mark.parametrize(
    "rates",
    [
        [40.0, 0.0, 0.0],
        [40.0, 40.0, 40.0],
        [40.0, 3.0, 0.0],
        [40.0, 20.0, 1.0],
        [40.0, 4.5, 4.5],
    ],
)
@pytest.mark.parametrize("limit", ["requests_per_minute", "tokens_per_minute"])
def test_several_gateways_together_grant_the_limit_within_5_percent(
    rates: list[float], limit: str
) -> None:
    entry = caller(**{limit: 600.0 if limit == "requests_per_minute" else 6000.0})
    play = Play(entry, "own", "b", "c")
    play.run(100, rates, tokens=10)  # the bursts are used up
    admitted = sum(play.run(120, rates, tokens=10))
    assert admitted == pytest.approx(1200, rel=0.05)


def test_the_limit_holds_while_the_load_moves_from_gateway_to_gateway() -> None:
    play = Play(caller(requests_per_minute=600.0), "own", "b", "c")
    play.run(100, [40.0, 0.0, 0.0])
    admitted = 0
    for rates in ([0.0, 40.0, 0.0], [0.0, 0.0, 40.0], [40.0, 0.0, 40.0]):
        admitted += sum(play.run(60, rates))
    assert admitted <= 1800 * 1.05
    assert (
        admitted >= 1800 * 0.85
    )  # a gateway refuses for seconds before it has its part


def test_requests_under_way_never_exceed_the_limit_over_all_gateways() -> None:
    play = Play(caller(concurrency=12), "own", "b", "c")
    for rates in ([30.0, 0.0, 0.0], [30.0, 30.0, 0.0], [0.0, 30.0, 30.0]):
        for _ in range(30):
            play.run(1, rates, lasting=3.0)
            assert sum(len(gateway.open) for gateway in play.gateways) <= 12
        assert sum(len(gateway.open) for gateway in play.gateways) >= 11


def test_parts_change_only_while_a_gateway_is_short() -> None:
    play = Play(caller(requests_per_minute=600.0, concurrency=9), "own", "b")
    play.run(20, [1.0, 3.0])
    changes = play.changes
    play.run(30, [3.0, 1.0])
    assert play.changes == changes


def test_a_gateway_that_is_alone_has_the_whole_limits() -> None:
    entry = caller(requests_per_minute=600.0, concurrency=9)
    deals = LimitDeals()
    deals.meet("own", 0.0)
    assert with_parts([entry], deals.deal([entry], 0.0)["own"]) == (entry,)
    deals.meet("b", 1.0)
    dealt = deals.deal([entry], 1.0)
    (part,) = with_parts([entry], dealt["b"])
    assert part.requests_per_minute == pytest.approx(300.0)
    assert part.concurrency == 0  # the first one may have all of them under way
    assert dealt.get("unknown") is None
    (first,) = with_parts([entry], None)
    assert first.requests_per_minute == 600.0 * FIRST_SHARE
    later = 1.0 + SILENT_SECONDS / 2
    deals.meet("own", later)
    assert deals.deal([entry], 2.0 + SILENT_SECONDS).keys() == {"own"}


def test_callers_without_limits_get_no_parts() -> None:
    free = CallerEntry(name="bob/t2", key_sha256=KEY, group="bob")
    single = CallerEntry(name="x", key_sha256=KEY, requests_per_minute=5.0)
    deals = LimitDeals()
    for gateway in ("own", "b"):
        deals.meet(gateway, 0.0)
    dealt = deals.deal([free, single], 0.0)
    assert with_parts([free, single], dealt["b"]) == (free, single)
