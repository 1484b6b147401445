"""Sums of what gateways report: whole counters of each of their processes, added exactly
once, and what is under way now."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from corral.wire.caller_names import is_batch_caller
from corral.wire.gateway_counters import (
    CountersReport,
    ReportedHistogram,
    ReportedProcess,
    ReportedRevision,
    ReportedService,
)

FORGET_SECONDS: Final = 3600.0  # after which a silent process and gateway are forgotten
UNDER_WAY_SECONDS: Final = 5.0  # for which the last gauges of a process count
SERVER_ERROR: Final = 500
REFUSED: Final = frozenset({429, 503})  # by the gateway, without a replica
GATEWAY_EVENTS: Final = (
    "retries",
    "ejections",
    "client_gone",
    "streams_lost",
    "streams_continued",
)


@dataclass(frozen=True, slots=True)
class LatencySum:
    """Latencies in the buckets of a histogram, and their sum in seconds."""

    counts: tuple[int, ...] = ()
    seconds: float = 0.0

    def plus(self, other: "LatencySum", sign: int = 1) -> "LatencySum":
        """Return the sum. Histograms with other bounds than this one are ignored."""
        if not self.counts:
            return LatencySum(
                tuple(sign * count for count in other.counts), sign * other.seconds
            )
        if len(self.counts) != len(other.counts):
            return self
        counts = tuple(
            count + sign * more
            for count, more in zip(self.counts, other.counts, strict=True)
        )
        return LatencySum(counts, self.seconds + sign * other.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionSum:
    """What happened at one revision's replicas, or at all of a service. `failures` are
    requests whose answer was an error of the server; `refusals` those that the gateway
    itself has refused because no replica was free or a limit was reached; `losses`
    attempts that were lost there, which another replica may have answered."""

    requests: int = 0
    failures: int = 0
    refusals: int = 0
    losses: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    ttft: LatencySum = LatencySum()
    itl: LatencySum = LatencySum()

    def plus(self, other: "RevisionSum", sign: int = 1) -> "RevisionSum":
        return RevisionSum(
            requests=self.requests + sign * other.requests,
            failures=self.failures + sign * other.failures,
            refusals=self.refusals + sign * other.refusals,
            losses=self.losses + sign * other.losses,
            prompt_tokens=self.prompt_tokens + sign * other.prompt_tokens,
            cached_tokens=self.cached_tokens + sign * other.cached_tokens,
            output_tokens=self.output_tokens + sign * other.output_tokens,
            ttft=self.ttft.plus(other.ttft, sign),
            itl=self.itl.plus(other.itl, sign),
        )

    def minus(self, earlier: "RevisionSum") -> "RevisionSum":
        return self.plus(earlier, -1)


NOTHING: Final = RevisionSum()


@dataclass(frozen=True, slots=True)
class TokenSum:
    """Tokens of a caller; `cached` are part of `prompt`. `requests`: those that a
    replica has answered."""

    prompt: int = 0
    cached: int = 0
    output: int = 0
    requests: int = 0

    def plus(self, other: "TokenSum", sign: int = 1) -> "TokenSum":
        return TokenSum(
            self.prompt + sign * other.prompt,
            self.cached + sign * other.cached,
            self.output + sign * other.output,
            self.requests + sign * other.requests,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSum:
    """Sums of a service: arrivals, its revisions, and the tokens of its callers.
    `events`: how often its gateways did what GATEWAY_EVENTS name. `fallback_requests`:
    requests that its fallback has ended; they are in no other sum."""

    arrivals: int = 0
    batch_arrivals: int = 0
    revisions: Mapping[int | None, RevisionSum] = field(default_factory=dict)
    tokens: Mapping[str, TokenSum] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)
    fallback_requests: int = 0

    def plus(self, other: "ServiceSum", sign: int = 1) -> "ServiceSum":
        revisions = dict(self.revisions)
        for number, more in other.revisions.items():
            revisions[number] = revisions.get(number, NOTHING).plus(more, sign)
        tokens = dict(self.tokens)
        for caller, spent in other.tokens.items():
            tokens[caller] = tokens.get(caller, TokenSum()).plus(spent, sign)
        return ServiceSum(
            arrivals=self.arrivals + sign * other.arrivals,
            batch_arrivals=self.batch_arrivals + sign * other.batch_arrivals,
            revisions=revisions,
            tokens=tokens,
            events={
                name: self.events.get(name, 0) + sign * other.events.get(name, 0)
                for name in GATEWAY_EVENTS
            },
            fallback_requests=self.fallback_requests + sign * other.fallback_requests,
        )

    @property
    def batch_tokens(self) -> TokenSum:
        """Tokens of all batches."""
        total = TokenSum()
        for caller, spent in self.tokens.items():
            if is_batch_caller(caller):
                total = total.plus(spent)
        return total

    @property
    def total(self) -> RevisionSum:
        """The sum of all revisions."""
        total = NOTHING
        for revision in self.revisions.values():
            total = total.plus(revision)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """Requests of a service under way now: all of them, those that wait for a replica,
    the part of both that batches have, and those at each replica by its name.
    `pending_tokens`: tokens of prompts at each replica that are not computed yet."""

    requests: int = 0
    queued: int = 0
    batch_requests: int = 0
    batch_queued: int = 0
    by_replica: Mapping[str, int] = field(default_factory=dict)
    pending_tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Process:
    """Newest report of one process of a gateway."""

    at: float
    sums: dict[str, ServiceSum]
    under_way: dict[str, UnderWay]


@dataclass(slots=True)
class CounterSums:
    """Sums over all gateways since this head leads.

    The counters of each process only grow, so the difference to its last report is what
    is new, however often and through whichever gateway it is reported. Counters from
    before the first report of a gateway were counted by an earlier head, and are left
    out; those of a process that a known gateway has started since are new.
    `active_callers` are the callers of new requests; the reader removes them.
    """

    services: dict[str, ServiceSum] = field(default_factory=dict)
    bounds: dict[str, tuple[float, ...]] = field(default_factory=dict)
    active_callers: set[str] = field(default_factory=set)
    _processes: dict[str, _Process] = field(default_factory=dict)
    _gateways: dict[str, float] = field(default_factory=dict)

    @property
    def gateways(self) -> list[str]:
        """Return the names of the gateways that have sent counters lately."""
        return sorted(self._gateways)

    def expect(self, gateway: str, now: float) -> None:
        """Note that a gateway has been started now: all its counters are new."""
        self._gateways[gateway] = now

    def take(self, gateway: str, report: CountersReport, now: float) -> None:
        """Add what is new in a report. `gateway`: name of the one that sends it."""
        self._forget(now)
        is_known = gateway in self._gateways
        self._gateways[gateway] = now
        for name, bounds in report.bounds.items():
            self.bounds.setdefault(name, bounds)
        for process in report.processes:
            self._take_process(process, report, now, is_known=is_known)

    def under_way(self, service: str, now: float) -> UnderWay | None:
        """Return the requests of a service under way; None if no gateway has reported
        lately."""
        recent = [
            process
            for process in self._processes.values()
            if now - process.at < UNDER_WAY_SECONDS
        ]
        if not recent:
            return None
        parts = [
            process.under_way[service]
            for process in recent
            if service in process.under_way
        ]
        return UnderWay(
            requests=sum(part.requests for part in parts),
            queued=sum(part.queued for part in parts),
            batch_requests=sum(part.batch_requests for part in parts),
            batch_queued=sum(part.batch_queued for part in parts),
            by_replica=_summed(part.by_replica for part in parts),
            pending_tokens=_summed(part.pending_tokens for part in parts),
        )

    def drop_service(self, service: str) -> None:
        """Forget the sums of a service that has ended."""
        self.services.pop(service, None)

    def _take_process(
        self,
        process: ReportedProcess,
        report: CountersReport,
        now: float,
        *,
        is_known: bool,
    ) -> None:
        last = self._processes.get(process.process)
        sums = {
            name: _sum_of(service, self._is_comparable(report))
            for name, service in process.services.items()
        }
        self._processes[process.process] = _Process(
            at=now,
            sums=sums,
            under_way={
                name: _under_way_of(service)
                for name, service in process.services.items()
            },
        )
        if last is None and not is_known:
            return
        for name, whole in sums.items():
            before = ServiceSum() if last is None else last.sums.get(name, ServiceSum())
            fresh = whole.plus(before, -1)
            self.active_callers.update(
                caller for caller, spent in fresh.tokens.items() if spent.requests > 0
            )
            present = self.services.get(name, ServiceSum())
            self.services[name] = present.plus(fresh)

    def _is_comparable(self, report: CountersReport) -> bool:
        """Return whether the histograms of a report have the bounds of the others."""
        return all(
            self.bounds.get(name) == bounds for name, bounds in report.bounds.items()
        )

    def _forget(self, now: float) -> None:
        for id, process in list(self._processes.items()):
            if now - process.at > FORGET_SECONDS:
                del self._processes[id]
        for gateway, at in list(self._gateways.items()):
            if now - at > FORGET_SECONDS:
                del self._gateways[gateway]


def _sum_of(service: ReportedService, has_latencies: bool) -> ServiceSum:
    revisions: dict[int | None, RevisionSum] = {}
    tokens: dict[str, TokenSum] = {}
    for reported in service.revisions:
        earlier = revisions.get(reported.revision, NOTHING)
        revisions[reported.revision] = earlier.plus(_revision(reported, has_latencies))
        for caller, spent in _tokens(reported):
            tokens[caller] = tokens.get(caller, TokenSum()).plus(spent)
    return ServiceSum(
        arrivals=service.arrivals,
        batch_arrivals=service.batch_arrivals,
        revisions=revisions,
        tokens=tokens,
        events={name: getattr(service, name) for name in GATEWAY_EVENTS},
        fallback_requests=sum(service.fallback_requests.values()),
    )


def _revision(reported: ReportedRevision, has_latencies: bool) -> RevisionSum:
    total = TokenSum()
    for _, spent in _tokens(reported):
        total = total.plus(spent)
    return RevisionSum(
        requests=sum(reported.requests.values()),
        failures=sum(
            count
            for status, count in reported.requests.items()
            if status >= SERVER_ERROR
        ),
        refusals=sum(
            count
            for status, count in reported.requests.items()
            if reported.revision is None and status in REFUSED
        ),
        losses=sum(reported.losses.values()),
        prompt_tokens=total.prompt,
        cached_tokens=min(total.cached, total.prompt),
        output_tokens=total.output,
        ttft=_latency(reported.ttft) if has_latencies else LatencySum(),
        itl=_latency(reported.itl) if has_latencies else LatencySum(),
    )


def _tokens(reported: ReportedRevision) -> Iterator[tuple[str, TokenSum]]:
    for caller, tokens in reported.tokens.items():
        spent = TokenSum(tokens.prompt, tokens.cached, tokens.output, tokens.requests)
        yield caller, spent


def _latency(histogram: ReportedHistogram) -> LatencySum:
    return LatencySum(histogram.counts, histogram.sum)


def _under_way_of(service: ReportedService) -> UnderWay:
    return UnderWay(
        requests=service.in_flight,
        queued=service.queued,
        batch_requests=service.batch_in_flight,
        batch_queued=service.batch_queued,
        by_replica={replica.name: replica.in_flight for replica in service.replicas},
        pending_tokens={
            replica.name: replica.pending_tokens for replica in service.replicas
        },
    )


def _summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            sums[name] = sums.get(name, 0) + count
    return sums
