"""Decisions about the number of replicas of a replayed service, once a second."""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from corral.domain.service import ScaleRule
from corral.plan.service_replay.virtual_gateway import ReplayCounts
from corral.route.latency_counts import LatencyCounts
from corral.route.load_history import ServiceCounters
from corral.route.replica_count import ReplicaDecision
from corral.route.service_demand import (
    AnsweredLoad,
    PresentReplicas,
    ServiceDemand,
    replica_limits,
)

WINDOW_SECONDS: Final = 60
QUANTILE: Final = 0.9
# upper bounds in seconds of the buckets in which latencies of the last minute are counted
LATENCY_BOUNDS: Final = tuple(0.001 * 1.25**power for power in range(60))


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """Change of the number of wanted replicas. `at`: seconds since the trace begins."""

    at: float
    before: int
    wanted: int
    cause: str
    reason: str


@dataclass(slots=True)
class LatencyWindow:
    """Latencies of the last minute, in the buckets of a histogram."""

    _counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS) + 1))
    _seconds: deque[list[tuple[int, int]]] = field(default_factory=deque)
    _open: dict[int, int] = field(default_factory=dict)

    def add(self, seconds: float, count: int = 1) -> None:
        """Add latencies of the present second."""
        bucket = bisect_left(LATENCY_BOUNDS, seconds)
        self._open[bucket] = self._open.get(bucket, 0) + count

    def close_second(self) -> None:
        """End the present second; what is a minute old is forgotten."""
        closed = list(self._open.items())
        self._open.clear()
        self._seconds.append(closed)
        for bucket, count in closed:
            self._counts[bucket] += count
        if len(self._seconds) > WINDOW_SECONDS:
            for bucket, count in self._seconds.popleft():
                self._counts[bucket] -= count

    def quantile(self) -> float | None:
        """Return the 0.9 quantile in seconds; None without latencies."""
        counts = LatencyCounts(
            bounds=LATENCY_BOUNDS, counts=tuple(self._counts), seconds=0.0
        )
        return counts.quantile(QUANTILE)


@dataclass(slots=True, kw_only=True)
class VirtualScaler:
    """Number of replicas that a service wants, as the head decides it.

    Args:
        least: Fewest replicas.
        most: Most replicas.
    """

    scale: ScaleRule
    least: int
    most: int
    demand: ServiceDemand = field(default_factory=ServiceDemand)
    ttft: LatencyWindow = field(default_factory=LatencyWindow)
    itl: LatencyWindow = field(default_factory=LatencyWindow)
    events: list[ScaleEvent] = field(default_factory=list)
    _before: ReplayCounts = field(default_factory=ReplayCounts)

    def decide(
        self, counts: ReplayCounts, waiting: int, wanted: int, ready: int, now: float
    ) -> int:
        """Return the number of replicas to want from now on."""
        self.ttft.close_second()
        self.itl.close_second()
        if self.least == self.most:
            return self.most
        outstanding = counts.in_flight + waiting
        self._learn(counts, outstanding, ready)
        self.demand.take(
            ServiceCounters(
                requests=counts.arrivals,
                new_tokens=counts.answered_new_tokens,
                output_tokens=counts.answered_output_tokens,
                outstanding=outstanding,
            ),
            now,
        )
        decision = self._decision(waiting, wanted, ready, now)
        if decision is None or decision.wanted == wanted:
            return wanted
        self.events.append(
            ScaleEvent(
                now, wanted, decision.wanted, decision.cause.value, decision.reason
            )
        )
        return decision.wanted

    def _decision(
        self, waiting: int, wanted: int, ready: int, now: float
    ) -> ReplicaDecision | None:
        present = PresentReplicas(
            wanted=wanted,
            ready=ready,
            held_requests=waiting,
            ttft_p90=self._measured(self.ttft, self.scale.ttft_p90_seconds),
            itl_p90=self._measured(self.itl, self.scale.itl_p90_seconds),
        )
        limits = replica_limits(self.scale, self.least, self.most)
        return self.demand.decide(self.scale, limits, present, now)

    @staticmethod
    def _measured(window: LatencyWindow, goal: float | None) -> float | None:
        """Return the measured quantile if there is a goal that it matters for."""
        return None if goal is None else window.quantile()

    def _learn(self, counts: ReplayCounts, outstanding: int, ready: int) -> None:
        before = self._before
        change = AnsweredLoad(
            first_tokens=counts.first_tokens - before.first_tokens,
            new_tokens=counts.answered_new_tokens - before.answered_new_tokens,
            first_token_seconds=counts.first_token_seconds - before.first_token_seconds,
            gaps=counts.gaps - before.gaps,
            gap_seconds=counts.gap_seconds - before.gap_seconds,
        )
        before.first_tokens = counts.first_tokens
        before.answered_new_tokens = counts.answered_new_tokens
        before.first_token_seconds = counts.first_token_seconds
        before.gaps = counts.gaps
        before.gap_seconds = counts.gap_seconds
        self.demand.learn(change, outstanding, ready)
