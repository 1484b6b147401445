"""Replay of a trace in virtual time: requests arrive, `route` chooses and scales, and
engines work at modelled speed."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from corral.domain.service import ScaleRule
from corral.perf.serving import BatchLimits
from corral.plan.service_replay.batching_engine import (
    BatchingEngine,
    EngineSequence,
    EngineSteps,
    TokenGaps,
)
from corral.plan.service_replay.trace_outcome import (
    ReplicaSample,
    TraceOutcome,
    merged_gaps,
)
from corral.plan.service_replay.trace_request import TraceRequest
from corral.plan.service_replay.virtual_gateway import VirtualGateway, VirtualReplica
from corral.plan.service_replay.virtual_scaler import VirtualScaler

TICK_SECONDS: Final = 1.0
MOST_EXTRA_SECONDS: Final = 86_400  # after the last arrival


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedService:
    """Service of a replay.

    Attributes:
        times: times of the steps of a replica.
        limits: limits of a step.
        cache_tokens: tokens whose keys and values a replica holds.
        request_seconds: seconds that an engine adds to each request.
        least: fewest replicas.
        most: most replicas.
        first: replicas that are ready when the replay begins.
        start_seconds: time until a new replica is ready.
        shared_tokens: first tokens of each prompt that are always cached.
    """

    times: EngineSteps
    limits: BatchLimits
    cache_tokens: int
    request_seconds: float = 0.0
    scale: ScaleRule = field(default_factory=ScaleRule)
    least: int = 1
    most: int = 1
    first: int = 1
    start_seconds: float = 60.0
    shared_tokens: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.first <= self.most or self.most < 1:
            raise ValueError(
                f"not 0 <= {self.least} <= {self.first} <= {self.most}, 1 <= {self.most}"
            )


def replay_trace(
    service: ReplayedService, requests: Sequence[TraceRequest]
) -> TraceOutcome:
    """Return what the requests of a trace meet at a service.

    Args:
        requests: in the order of their arrival; at least one.
    """
    return _Replay(service).run(requests)


class _EngineEvent(NamedTuple):
    at: float
    order: int
    replica: VirtualReplica
    version: int


class _Replay:
    """State of one replay."""

    def __init__(self, service: ReplayedService) -> None:
        self.service = service
        self.gateway = VirtualGateway(self._submit, service.shared_tokens)
        self.scaler = VirtualScaler(
            scale=service.scale, least=service.least, most=service.most
        )
        self.wanted = service.first
        self.events: list[_EngineEvent] = []
        self.order = count()
        self.number = count(1)
        self.ttft: list[float] = []
        self.gaps: list[TokenGaps] = []
        self.samples: list[ReplicaSample] = []
        self.too_long = 0
        self.cached_tokens = 0
        for _ in range(service.first):
            self._start_replica(0.0, 0.0)

    def run(self, requests: Sequence[TraceRequest]) -> TraceOutcome:
        begin = requests[0].arrival
        end = requests[-1].arrival - begin
        tick = 0.0
        for request in requests:
            arrival = request.arrival - begin
            while tick <= arrival:
                self._advance(tick)
                self._tick(tick)
                tick += TICK_SECONDS
            self._advance(arrival)
            if request.tokens > self.service.cache_tokens:
                self.too_long += 1
                continue
            moved = request if not begin else replace(request, arrival=arrival)
            self.gateway.arrive(moved)
        sampled = len(self.samples)
        while self._is_busy and tick < end + MOST_EXTRA_SECONDS:
            self._advance(tick)
            self._tick(tick)
            tick += TICK_SECONDS
        del self.samples[sampled:]
        return self._outcome(requests, max(end, TICK_SECONDS))

    @property
    def _is_busy(self) -> bool:
        return bool(self.gateway.waiting or self.gateway.counts.in_flight)

    def _advance(self, until: float) -> None:
        """Let the engines work up to a time."""
        events = self.events
        while events and events[0].at <= until:
            event = heappop(events)
            if event.version == event.replica.version:
                self._finish_span(event.replica, event.at)

    def _finish_span(self, replica: VirtualReplica, now: float) -> None:
        gateway = self.gateway
        news = replica.engine.finish_span()
        self._schedule(replica)
        if news.gaps is not None:
            self.gaps.append(news.gaps)
            gateway.counts.gaps += news.gaps.tokens
            gateway.counts.gap_seconds += news.gaps.tokens * news.gaps.seconds
            self.scaler.itl.add(news.gaps.seconds, news.gaps.tokens)
        for sequence in news.first_tokens:
            seen_at = now + self.service.request_seconds
            seconds = gateway.take_first_token(sequence, seen_at)
            self.ttft.append(seconds)
            self.scaler.ttft.add(seconds)
            self.cached_tokens += sequence.cached_tokens
        for sequence in news.finished:
            gateway.take_end(sequence, now)
        if replica.draining and replica.engine.is_idle:
            replica.ended_at = now
        if news.finished and gateway.waiting:
            gateway.send_waiting(now)

    def _submit(
        self, replica: VirtualReplica, sequence: EngineSequence, now: float
    ) -> None:
        replica.engine.submit(sequence, now)
        self._schedule(replica)

    def _schedule(self, replica: VirtualReplica) -> None:
        """Put the end of the present span of a replica among the events."""
        replica.version += 1
        at = replica.engine.next_at
        if at is not None:
            event = _EngineEvent(at, next(self.order), replica, replica.version)
            heappush(self.events, event)

    def _tick(self, now: float) -> None:
        gateway = self.gateway
        gateway.list_replicas(now)
        ready = len(gateway.ready)
        wanted = self.scaler.decide(
            gateway.counts, gateway.waiting, self.wanted, ready, now
        )
        if wanted != self.wanted:
            self._scale_to(wanted, now)
            gateway.list_replicas(now)
        self.wanted = wanted
        self.samples.append(
            ReplicaSample(now, wanted, len(gateway.ready), gateway.waiting)
        )

    def _scale_to(self, wanted: int, now: float) -> None:
        active = [replica for replica in self.gateway.replicas if not replica.draining]
        for _ in range(wanted - len(active)):
            self._start_replica(now, now + self.service.start_seconds)
        excess = len(active) - wanted
        if excess <= 0:
            return
        # those that start first, then those with the fewest requests
        active.sort(
            key=lambda replica: (replica.ready_at <= now, replica.state.in_flight)
        )
        for replica in active[:excess]:
            replica.draining = True
            if replica.engine.is_idle:
                replica.ended_at = now

    def _start_replica(self, now: float, ready_at: float) -> None:
        service = self.service
        engine = BatchingEngine(service.times, service.limits, service.cache_tokens)
        name = f"replica-{next(self.number)}"
        self.gateway.replicas.append(VirtualReplica(name, engine, now, ready_at))

    def _outcome(self, requests: Sequence[TraceRequest], end: float) -> TraceOutcome:
        replicas = self.gateway.replicas
        counts = self.gateway.counts
        busy = [replica.engine.busy_seconds for replica in replicas]
        total = sum(busy)
        prompt_tokens = counts.answered_prompt_tokens
        return TraceOutcome(
            requests=len(requests),
            refused=counts.refused,
            too_long=self.too_long,
            prompt_tokens=prompt_tokens,
            output_tokens=counts.answered_output_tokens,
            ttft=sorted(self.ttft),
            gaps=merged_gaps(self.gaps),
            samples=self.samples,
            events=self.scaler.events,
            seconds=end,
            replica_seconds=sum(replica.seconds_until(end) for replica in replicas),
            busy_seconds=total,
            longest_wait=max((sample.waiting for sample in self.samples), default=0),
            hit_share=self.cached_tokens / prompt_tokens if prompt_tokens else 0.0,
            imbalance=max(busy) * len(busy) / total if total else 1.0,
        )
