"""Metrics of the gateway: counters of each service and replica, and their sums over the
processes of one gateway."""

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from corral.gateway.counting.counter_file import MOST_COUNTER_FILES, CounterFile
from corral.gateway.counting.latency_histogram import (
    ITL_BOUNDS,
    REQUEST_BOUNDS,
    TTFT_BOUNDS,
    LatencyHistogram,
    empty_histogram,
)
from corral.route.rate_limits import CallerLimits

log = logging.getLogger(__name__)

NO_SERVICE: Final = ""
NO_REPLICA: Final = ""
STALE_SECONDS: Final = 5.0
SERVICE_GAUGES: Final = ("in_flight", "queued", "batch_in_flight", "batch_queued")
SERVICE_COUNTERS: Final = (
    "arrivals",
    "batch_arrivals",
    "retries",
    "ejections",
    "client_gone",
    "streams_lost",
    "streams_continued",
    "adapter_loads",
    "adapter_unloads",
    "adapter_failures",
)


class TokenSums(msgspec.Struct):
    """Tokens of the requests of one caller; `cached` are part of `prompt`. `requests`:
    those that a replica has answered."""

    prompt: int = 0
    cached: int = 0
    output: int = 0
    requests: int = 0

    def add(self, prompt: int, cached: int, output: int, requests: int = 0) -> None:
        self.prompt += prompt
        self.cached += cached
        self.output += output
        self.requests += requests


class ReplicaCounters(msgspec.Struct):
    """Counters of the requests that one replica has answered, or of a sum of replicas.

    Attributes:
        requests: ended requests by the status of their answer.
        losses: attempts that were lost there, by their kind. Another replica may have
            answered these requests.
        tokens: tokens by the name of the caller.
        prefill_seconds: times of prompts that were computed there for others.
        pending_tokens: tokens of prompts that were sent there and are not yet computed.
    """

    revision: int | None = None
    in_flight: int = 0
    requests: dict[int, int] = {}
    losses: dict[str, int] = {}
    tokens: dict[str, TokenSums] = {}
    ttft: LatencyHistogram = msgspec.field(
        default_factory=lambda: empty_histogram(TTFT_BOUNDS)
    )
    itl: LatencyHistogram = msgspec.field(
        default_factory=lambda: empty_histogram(ITL_BOUNDS)
    )
    request_seconds: LatencyHistogram = msgspec.field(
        default_factory=lambda: empty_histogram(REQUEST_BOUNDS)
    )
    prefill_seconds: LatencyHistogram = msgspec.field(
        default_factory=lambda: empty_histogram(TTFT_BOUNDS)
    )
    pending_tokens: int = 0

    def of_caller(self, caller: str) -> TokenSums:
        """Return the sums of a caller."""
        sums = self.tokens.get(caller)
        if sums is None:
            sums = self.tokens[caller] = TokenSums()
        return sums

    def add(self, other: "ReplicaCounters") -> None:
        """Add the counters of another replica, or of another process."""
        self.in_flight += other.in_flight
        for status, count in other.requests.items():
            self.requests[status] = self.requests.get(status, 0) + count
        for kind, count in other.losses.items():
            self.losses[kind] = self.losses.get(kind, 0) + count
        for caller, sums in other.tokens.items():
            self.of_caller(caller).add(
                sums.prompt, sums.cached, sums.output, sums.requests
            )
        self.ttft.add(other.ttft)
        self.itl.add(other.itl)
        self.request_seconds.add(other.request_seconds)
        self.prefill_seconds.add(other.prefill_seconds)
        self.pending_tokens += other.pending_tokens

    @property
    def token_sums(self) -> TokenSums:
        """Tokens of all callers."""
        total = TokenSums()
        for sums in self.tokens.values():
            total.add(sums.prompt, sums.cached, sums.output)
        return total


class ServiceMetrics(msgspec.Struct):
    """Counters of one service.

    Attributes:
        by_replica: counters of the replicas in the routes, and under NO_REPLICA of
            requests that reached none.
        past: sums of replicas that have left, one for each revision.
        fallback: counters of the requests that the fallback has answered; they are in
            no other sum.
        prefill: requests by where their prompt was computed, and why.
    """

    in_flight: int = 0
    queued: int = 0
    batch_in_flight: int = 0
    batch_queued: int = 0
    replicas: int = 0
    arrivals: int = 0
    batch_arrivals: int = 0
    retries: int = 0
    ejections: int = 0
    client_gone: int = 0
    streams_lost: int = 0
    streams_continued: int = 0
    adapter_loads: int = 0
    adapter_unloads: int = 0
    adapter_failures: int = 0
    by_replica: dict[str, ReplicaCounters] = {}
    past: list[ReplicaCounters] = []
    fallback: ReplicaCounters = msgspec.field(default_factory=ReplicaCounters)
    prefill: dict[str, int] = {}

    def count_prefill(self, outcome: str, count: int = 1) -> None:
        """Count requests by where their prompt was computed, and why."""
        self.prefill[outcome] = self.prefill.get(outcome, 0) + count

    def replica(self, name: str, revision: int | None) -> ReplicaCounters:
        """Return the counters of a replica."""
        counters = self.by_replica.get(name)
        if counters is not None and counters.revision != revision:
            self.close_replica(name)
            counters = None
        if counters is None:
            counters = self.by_replica[name] = ReplicaCounters(revision)
        return counters

    def close_replica(self, name: str) -> None:
        """Keep the counters of a replica that has left as part of its revision's."""
        counters = self.by_replica.pop(name, None)
        if counters is None:
            return
        counters.in_flight = 0
        counters.pending_tokens = 0
        for past in self.past:
            if past.revision == counters.revision:
                past.add(counters)
                return
        self.past.append(counters)

    @property
    def unrouted(self) -> ReplicaCounters:
        """Counters of the requests that reached no replica."""
        return self.replica(NO_REPLICA, None)

    def by_revision(self) -> dict[int | None, ReplicaCounters]:
        """Return the sums of each revision; None has what belongs to no revision."""
        sums: dict[int | None, ReplicaCounters] = {}
        for counters in (*self.by_replica.values(), *self.past):
            total = sums.get(counters.revision)
            if total is None:
                total = sums[counters.revision] = ReplicaCounters(counters.revision)
            total.add(counters)
        return sums

    def total(self) -> ReplicaCounters:
        """Return the sum of all replicas."""
        total = ReplicaCounters()
        for counters in (*self.by_replica.values(), *self.past):
            total.add(counters)
        return total

    def add(self, other: "ServiceMetrics") -> None:
        """Add the counters of another process. Each process sees the same replicas."""
        for field in (*SERVICE_GAUGES, *SERVICE_COUNTERS):
            setattr(self, field, getattr(self, field) + getattr(other, field))
        for name, counters in other.by_replica.items():
            self.replica(name, counters.revision).add(counters)
        self.past.extend(other.past)
        self.fallback.add(other.fallback)
        for outcome, count in other.prefill.items():
            self.count_prefill(outcome, count)

    def clear_gauges(self) -> None:
        """Forget the present state of a process that has ended."""
        for field in SERVICE_GAUGES:
            setattr(self, field, 0)
        for counters in self.by_replica.values():
            counters.in_flight = 0
            counters.pending_tokens = 0


class CallerUse(msgspec.Struct):
    """Use of a group of callers that has limits.

    Attributes:
        requests: requests that its limits have admitted.
        tokens: tokens that these have taken.
        refused: requests that were refused, by the limit.
    """

    in_flight: int = 0
    requests: int = 0
    tokens: int = 0
    refused: dict[str, int] = {}

    @classmethod
    def of(cls, limits: CallerLimits) -> "CallerUse":
        return cls(
            limits.in_flight,
            limits.admitted,
            max(0, round(limits.tokens)),
            {limit.value: count for limit, count in limits.refused.items()},
        )


class BudgetCounts(msgspec.Struct):
    """Use of a budget of tokens.

    Attributes:
        refused: requests that were refused because of it.
    """

    tokens: int = 0
    refused: int = 0


class ProcessCounters(msgspec.Struct):
    """Counters of one process since its start.

    Args:
        process: Random id. A process that continues the counters of a dead one has the
            same id, so counters of an id only grow.
        at: Time of the state, on the machine's monotonic clock.
        callers: Use of the groups of callers that have limits.
    """

    process: str
    at: float = 0.0
    services: dict[str, ServiceMetrics] = {}
    callers: dict[str, CallerUse] = {}
    budgets: dict[str, BudgetCounts] = {}

    def clear_gauges(self) -> None:
        """Forget the present state of a process that has ended."""
        for metrics in self.services.values():
            metrics.clear_gauges()
        for use in self.callers.values():
            use.in_flight = 0


class GatewayMetrics:
    """Counters of all services; services that are gone keep theirs.

    Args:
        own: File in which this process publishes its counters; None: no other process
            needs them.
        others: Files of the other processes of this gateway, and of its predecessors.
    """

    __slots__ = ("_others", "_own", "_state", "services")

    def __init__(
        self, own: CounterFile | None = None, others: Sequence[CounterFile] = ()
    ) -> None:
        self._own = own
        self._others = list(others)
        state = None if own is None else _decode(own)  # a predecessor may have died
        self._state = state or ProcessCounters(secrets.token_hex(16))
        self.services = self._state.services
        self._state.clear_gauges()

    @property
    def own(self) -> ProcessCounters:
        """Return the counters of this process."""
        return self._state

    def note_callers(self, limits: Mapping[str, CallerLimits]) -> None:
        """Take what the limits of groups of callers have counted."""
        self._state.callers = {
            group: CallerUse.of(counted) for group, counted in limits.items()
        }

    def note_budgets(self, counts: dict[str, BudgetCounts]) -> None:
        """Take what was counted of the budgets."""
        self._state.budgets = counts

    def of(self, service: str) -> ServiceMetrics:
        """Return the counters of a service, NO_SERVICE for requests without one."""
        metrics = self.services.get(service)
        if metrics is None:
            metrics = ServiceMetrics()
            self.services[service] = metrics
        return metrics

    def write(self, now: float) -> None:
        """Publish the counters for the other processes."""
        self._state.at = now
        if self._own is None:
            return
        try:
            self._own.write(msgspec.json.encode(self._state))
        except OSError as error:
            log.warning("the metrics cannot be written: %s", error)

    def share(self) -> list[CounterFile]:
        """Return the files of all processes of this gateway, for a successor.

        Raises: OSError.
        """
        if self._own is None:
            self._own = CounterFile.create()
            self.write(self._state.at)
        return [self._own, *self._others][:MOST_COUNTER_FILES]

    def processes(self, now: float) -> list[ProcessCounters]:
        """Return the counters of each process of the gateway, this one's first."""
        self.write(now)
        states = [self._state]
        for file in self._others:
            state = _decode(file)
            if state is None:
                continue
            if now - state.at > STALE_SECONDS:
                state.clear_gauges()
            states.append(state)
        return states

    def sums(self, now: float) -> dict[str, ServiceMetrics]:
        """Return the counters of all processes together."""
        if not self._others:
            return self.services
        first, *others = self.processes(now)
        text = msgspec.json.encode(first.services)
        total = msgspec.json.decode(text, type=dict[str, ServiceMetrics])
        for state in others:
            for name, metrics in state.services.items():
                total.setdefault(name, ServiceMetrics()).add(metrics)
        return total


def _decode(file: CounterFile) -> ProcessCounters | None:
    try:
        return msgspec.json.decode(file.read(), type=ProcessCounters)
    except (OSError, msgspec.DecodeError):
        return None
