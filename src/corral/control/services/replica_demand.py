"""Number of replicas that the demand of a service needs, from its gateways' counters."""

from dataclasses import dataclass, field
from typing import Final

from corral.control.services.counter_sums import RevisionSum, ServiceSum, UnderWay
from corral.control.services.service_rates import ServiceRates
from corral.domain.ids import JobId
from corral.domain.service import Service, ServiceSpec
from corral.domain.world import World
from corral.route.learned_rates import LearnedRates
from corral.route.load_history import (
    LoadHistory,
    ServiceCounters,
    begin_history,
    count_load,
    note_replica_count,
)
from corral.route.replica_count import (
    MeasuredReplicas,
    ReplicaDecision,
    ReplicaLimits,
    ScaleMeasure,
    decide_replica_count,
)
from corral.route.target_utilisation import (
    DEFAULT_UTILISATION,
    LatencyGoals,
    MeasuredLatency,
    learned_curve,
    target_utilisation,
)

QUEUED_A_REPLICA: Final = 4.0  # requests under way at one, of a service without a rule
BUSY_REQUESTS: Final = 8  # that generate tokens together in a busy replica
START_SECONDS: Final = 60.0  # until a replica is ready, while none has been seen
NEW_START_WEIGHT: Final = 0.5  # of the newest start in the learned time


@dataclass(slots=True)
class ReplicaDemand:
    """Load of one service, the speed of its replicas, and what they need to start."""

    history: LoadHistory | None = None
    rates: LearnedRates = field(default_factory=LearnedRates)
    start_seconds: float = START_SECONDS
    _started: set[JobId] = field(default_factory=set)

    def take(self, sums: ServiceSum, under_way: UnderWay, now: float) -> None:
        """Add the present counters to the history of the load."""
        total = sums.total
        counters = ServiceCounters(
            requests=sums.arrivals,
            new_tokens=total.prompt_tokens - total.cached_tokens,
            output_tokens=total.output_tokens,
            outstanding=under_way.requests,
        )
        if self.history is None:
            self.history = begin_history(counters, now)
        else:
            self.history = count_load(self.history, counters, now)

    def learn(self, change: RevisionSum, under_way: UnderWay, ready: int) -> None:
        """Learn the speed of a replica from the answers since the last counters."""
        first_tokens = sum(change.ttft.counts)
        if first_tokens:
            new_tokens = change.prompt_tokens - change.cached_tokens
            tokens = max(0, new_tokens) // first_tokens
            seconds = change.ttft.seconds / first_tokens
            # of a busy replica the time has a wait in it, and is only an upper bound
            waits = under_way.requests > ready
            if not waits or seconds < self.rates.prefill_seconds(tokens):
                self.rates.observe_first_token(tokens, seconds)
        gaps = sum(change.itl.counts)
        if gaps:
            running = under_way.requests // max(1, ready)
            self.rates.observe_itl(running, change.itl.seconds / gaps)

    def learn_starts(self, world: World, service: Service) -> None:
        """Learn how long a replica takes from its submission until it is ready."""
        present = {row.job for row in service.replicas}
        for row in service.replicas:
            job = world.jobs.get(row.job)
            if row.ready_at is None or job is None or row.job in self._started:
                continue
            self._started.add(row.job)
            seconds = max(1.0, row.ready_at - job.submitted_at)
            self.start_seconds += NEW_START_WEIGHT * (seconds - self.start_seconds)
        self._started &= present

    def decide(
        self,
        service: Service,
        measured: ServiceRates,
        under_way: UnderWay,
        now: float,
    ) -> ReplicaDecision | None:
        """Return how many replicas the demand needs; None while there is no history."""
        if self.history is None:
            return None
        # not the rows: the replica that a roll-out adds is no answer to demand
        present = service.wanted
        ready = min(service.ready_count, present)
        replicas = MeasuredReplicas(
            awake=present,
            ready=ready,
            prefill_tokens_per_second=1.0 / self.rates.seconds_per_token,
            itl_seconds=self.rates.itl_seconds(BUSY_REQUESTS),
            running=BUSY_REQUESTS,
            utilisation=self._utilisation(service.spec, measured, ready),
            start_seconds=self.start_seconds,
            held_requests=under_way.queued,
        )
        decision = decide_replica_count(
            self.history, replicas, replica_limits(service.spec), now
        )
        self.history = note_replica_count(
            self.history,
            needed=decision.needed,
            change=decision.wanted - present,
            now=now,
        )
        return decision

    def _utilisation(
        self, spec: ServiceSpec, measured: ServiceRates, ready: int
    ) -> float:
        """Return the share of its time that a replica may work, by its learned speed
        and the latencies of the last minute."""
        goals = LatencyGoals(
            ttft_p90=spec.scale.ttft_p90_seconds, itl_p90=spec.scale.itl_p90_seconds
        )
        history = self.history
        if history is None or goals == LatencyGoals():
            return DEFAULT_UTILISATION
        rate = history.mean_rate(60)
        prompt = rate.new_tokens / rate.requests if rate.requests else 0.0
        work = rate.new_tokens * self.rates.seconds_per_token
        work += (
            rate.output_tokens * self.rates.itl_seconds(BUSY_REQUESTS) / BUSY_REQUESTS
        )
        target = target_utilisation(
            learned_curve(self.rates, prompt, BUSY_REQUESTS),
            goals,
            MeasuredLatency(
                utilisation=work / max(1, ready),
                ttft_p90=measured.ttft_p90_seconds,
                itl_p90=measured.itl_p90_seconds,
            ),
        )
        return target.utilisation


def replica_limits(spec: ServiceSpec) -> ReplicaLimits:
    """Return how many replicas a service may have, and what decides their number."""
    scale = spec.scale
    rule, amount = ScaleMeasure.QUEUE, scale.queue or QUEUED_A_REPLICA
    if scale.ttft_p90_seconds is not None or scale.itl_p90_seconds is not None:
        rule, amount = ScaleMeasure.LATENCY, 1.0
    elif scale.rps is not None:
        rule, amount = ScaleMeasure.REQUESTS, scale.rps
    elif scale.tokens is not None:
        rule, amount = ScaleMeasure.TOKENS, scale.tokens
    return ReplicaLimits(
        least=spec.min_replicas,
        most=max(1, spec.max_replicas),
        rule=rule,
        amount=amount,
    )
