"""Number of replicas that the demand of a service needs, from its gateways' counters."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from corral.control.services.counter_sums import RevisionSum, ServiceSum, UnderWay
from corral.control.services.prefill_demand import PrefillDemand
from corral.control.services.service_rates import ServiceRates
from corral.domain.ids import JobId
from corral.domain.service import Service
from corral.domain.world import World
from corral.route.batch_demand import BatchRate, BatchWork, replicas_for_batches
from corral.route.load_history import ServiceCounters
from corral.route.replica_count import ReplicaDecision
from corral.route.role_demand import decode_answers, group_limits, group_rule
from corral.route.service_demand import (
    START_SECONDS,
    TAKE_BACK_SECONDS,
    AnsweredLoad,
    PresentReplicas,
    ServiceDemand,
    replica_limits,
)


@dataclass(slots=True)
class ReplicaDemand:
    """Demand of one service, as its gateways count it."""

    demand: ServiceDemand = field(default_factory=ServiceDemand)
    batch_rate: BatchRate = field(default_factory=BatchRate)
    prefill: PrefillDemand = field(default_factory=PrefillDemand)
    _started: set[JobId] = field(default_factory=set)

    def take(
        self, service: Service, sums: ServiceSum, under_way: UnderWay, now: float
    ) -> None:
        """Add the present counters to the history of the load. Requests of batches are
        no part of it: they say themselves what they need."""
        total = sums.total
        batch = sums.batch_tokens
        counters = ServiceCounters(
            requests=sums.arrivals - sums.batch_arrivals,
            new_tokens=total.prompt_tokens
            - total.cached_tokens
            - (batch.prompt - batch.cached),
            output_tokens=total.output_tokens - batch.output,
            outstanding=max(0, under_way.requests - under_way.batch_requests),
        )
        if service.spec.roles:
            counters = self.prefill.take(service, counters, under_way, now)
        self.demand.take(counters, now)

    def learn(self, service: Service, change: RevisionSum, under_way: UnderWay) -> None:
        """Learn the speed of a replica from the answers since the last counters."""
        answered = AnsweredLoad(
            first_tokens=sum(change.ttft.counts),
            new_tokens=change.prompt_tokens - change.cached_tokens,
            first_token_seconds=change.ttft.seconds,
            gaps=sum(change.itl.counts),
            gap_seconds=change.itl.seconds,
        )
        if service.prefill_ready_count:
            self.prefill.learn(service, answered, under_way)
            answered = decode_answers(answered)
        self.demand.learn(answered, under_way.requests, service.ready_count)

    def learn_starts(self, world: World, service: Service) -> None:
        """Learn how long a replica takes from its submission until it is ready."""
        present = {row.job for row in service.replicas}
        for row in service.replicas:
            job = world.jobs.get(row.job)
            if row.ready_at is None or job is None or row.job in self._started:
                continue
            self._started.add(row.job)
            demand = self.prefill.demand if row.role.is_prefill else self.demand
            demand.learn_start(row.ready_at - job.submitted_at)
        self._started &= present

    def decide(
        self,
        service: Service,
        measured: ServiceRates,
        under_way: UnderWay,
        batches: Sequence[BatchWork],
        now: float,
    ) -> ReplicaDecision | None:
        """Return how many replicas the demand needs; None while there is no history."""
        spec = service.spec
        self.batch_rate.learn(batches, service.ready_count)
        needed = replicas_for_batches(batches, self.batch_rate.tokens_per_second)
        present = PresentReplicas(
            # not the rows: the replica that a roll-out adds is no answer to demand
            wanted=service.wanted,
            ready=service.ready_count,
            held_requests=max(0, under_way.queued - under_way.batch_queued),
            has_batches=bool(batches),
            batch_replicas=needed,
            ttft_p90=measured.ttft_p90_seconds,
            itl_p90=measured.itl_p90_seconds,
            **_sleepers(service),
        )
        if spec.roles:
            scale = group_rule(spec.scale, prefill=False)
            limits = group_limits(spec.scale, spec.roles[-1])
            return self.demand.decide(scale, limits, present, now)
        limits = replica_limits(
            spec.scale,
            spec.min_replicas,
            spec.max_replicas,
            least_sleeping=spec.sleeping,
        )
        return self.demand.decide(spec.scale, limits, present, now)


class _Sleepers(TypedDict, total=False):
    sleeping: int
    lent: int
    wake_seconds: float | None
    take_back_seconds: float


def _sleepers(service: Service) -> _Sleepers:
    """Return the sleeping replicas of a service, and what it takes to wake them."""
    spec = service.spec
    if not spec.may_sleep:
        return {}
    sleeps = [row.sleep for row in service.sleeping_rows if row.sleep is not None]
    wake_seconds = service.wake_seconds
    return {
        "sleeping": len(sleeps),
        "lent": sum(bool(sleep.borrows) for sleep in sleeps),
        # before the first measurement, that of a start is an upper bound
        "wake_seconds": START_SECONDS if wake_seconds is None else wake_seconds,
        "take_back_seconds": spec.scale.back_within_seconds or TAKE_BACK_SECONDS,
    }
