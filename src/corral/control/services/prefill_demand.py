"""Number of prefill replicas that the demand of a service needs."""

from dataclasses import dataclass, field
from typing import Final

from corral.control.services.counter_sums import UnderWay
from corral.control.services.service_rates import ServiceRates
from corral.domain.service import Service
from corral.route.load_history import ServiceCounters
from corral.route.replica_count import ReplicaDecision
from corral.route.role_demand import (
    decode_counters,
    group_limits,
    group_rule,
    prefill_answers,
    prefill_counters,
    waiting_prompts,
)
from corral.route.service_demand import AnsweredLoad, PresentReplicas, ServiceDemand

RATE_SECONDS: Final = 60  # over which the mean prompt is taken


@dataclass(slots=True)
class PrefillDemand:
    """Demand for the prefill replicas of one service, and what they leave to those that
    decode."""

    demand: ServiceDemand = field(default_factory=ServiceDemand)
    _new_tokens: float = 0.0  # at the last counters
    _own_tokens: float = 0.0  # that decode replicas had to compute themselves

    def take(
        self,
        service: Service,
        counters: ServiceCounters,
        under_way: UnderWay,
        now: float,
    ) -> ServiceCounters:
        """Add the present counters to the history of the prefill replicas. Return those
        for the decode replicas, which compute the prompts while no other is ready."""
        at_prefill = sum(
            under_way.by_replica.get(row.job, 0)
            for row in service.replicas
            if row.role.is_prefill
        )
        if not service.prefill_ready_count:
            self._own_tokens += max(0.0, counters.new_tokens - self._new_tokens)
        self._new_tokens = counters.new_tokens
        self.demand.take(prefill_counters(counters, at_prefill), now)
        return decode_counters(counters, at_prefill, self._own_tokens)

    def learn(
        self, service: Service, answered: AnsweredLoad, under_way: UnderWay
    ) -> None:
        """Learn the speed of a prefill replica from the answers since the last
        counters."""
        ready = service.prefill_ready_count
        self.demand.learn(prefill_answers(answered), under_way.requests, ready)

    def decide(
        self, service: Service, measured: ServiceRates, under_way: UnderWay, now: float
    ) -> ReplicaDecision | None:
        """Return how many prefill replicas the demand needs; None without a history, or
        if the service has none."""
        spec, history = service.spec, self.demand.history
        rule = spec.prefill
        if rule is None or history is None:
            return None
        rate = history.mean_rate(RATE_SECONDS)
        pending = sum(
            under_way.pending_tokens.get(row.job, 0)
            for row in service.replicas
            if row.role.is_prefill
        )
        ready = service.prefill_ready_count
        waiting = waiting_prompts(
            pending, rate.new_tokens / rate.requests if rate.requests else 0.0, ready
        )
        queued = max(0, under_way.queued - under_way.batch_queued)
        present = PresentReplicas(
            wanted=service.prefill.wanted,
            ready=ready,
            held_requests=queued + waiting,
            ttft_p90=measured.ttft_p90_seconds,
        )
        scale = group_rule(spec.scale, prefill=True)
        return self.demand.decide(scale, group_limits(spec.scale, rule), present, now)
