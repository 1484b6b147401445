"""Replicas that the demand of a service needs, by the load of the last hour and the learned
speed of its replicas."""

from dataclasses import dataclass, field
from typing import Final

from corral.domain.service import ScaleRule
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
TAKE_BACK_SECONDS: Final = 10.0  # of lent GPUs, of a service without a bound
NEW_START_WEIGHT: Final = 0.5  # of the newest start in the learned time


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredLoad:
    """Answers of a service since the last counters: their number, and the sums of their
    tokens and seconds.

    `gaps`: times between two tokens that were measured, and `gap_seconds`: their sum.
    """

    first_tokens: int
    new_tokens: int
    first_token_seconds: float
    gaps: int
    gap_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentReplicas:
    """Replicas and requests of a service now, and the latencies of the last minute.

    Args:
        wanted: Replicas that serve or start.
        ready: Replicas among them that serve.
        held_requests: Requests that wait in the gateways, without those of batches.
        has_batches: Whether batches have work left.
        batch_replicas: Replicas that they need by their deadlines.
        ttft_p90: Measured 0.9 quantile in seconds; None: no answer.
        itl_p90: The same of the time between tokens.
        sleeping: Replicas that sleep.
        lent: Replicas among them whose GPUs other jobs use.
        wake_seconds: Measured time of a wake; None: not known, or they do not sleep.
        take_back_seconds: Time until a replica is ready whose GPUs are lent.
    """

    wanted: int
    ready: int
    held_requests: int = 0
    has_batches: bool = False
    batch_replicas: float = 0.0
    ttft_p90: float | None = None
    itl_p90: float | None = None
    sleeping: int = 0
    lent: int = 0
    wake_seconds: float | None = None
    take_back_seconds: float = TAKE_BACK_SECONDS


@dataclass(slots=True)
class ServiceDemand:
    """Load of one service, the speed of its replicas, and what they need to start."""

    history: LoadHistory | None = None
    rates: LearnedRates = field(default_factory=LearnedRates)
    start_seconds: float = START_SECONDS

    def take(self, counters: ServiceCounters, now: float) -> None:
        """Add the present counters to the history of the load."""
        if self.history is None:
            self.history = begin_history(counters, now)
        else:
            self.history = count_load(self.history, counters, now)

    def learn(self, change: AnsweredLoad, outstanding: int, ready: int) -> None:
        """Learn the speed of a replica from the answers since the last counters."""
        if change.first_tokens:
            tokens = max(0, change.new_tokens) // change.first_tokens
            seconds = change.first_token_seconds / change.first_tokens
            # of a busy replica the time has a wait in it, and is only an upper bound
            waits = outstanding > ready
            if not waits or seconds < self.rates.prefill_seconds(tokens):
                self.rates.observe_first_token(tokens, seconds)
        if change.gaps:
            running = outstanding // max(1, ready)
            self.rates.observe_itl(running, change.gap_seconds / change.gaps)

    def learn_start(self, seconds: float) -> None:
        """Learn from the seconds that a replica took until it was ready."""
        seconds = max(1.0, seconds)
        self.start_seconds += NEW_START_WEIGHT * (seconds - self.start_seconds)

    def decide(
        self,
        scale: ScaleRule,
        limits: ReplicaLimits,
        present: PresentReplicas,
        now: float,
    ) -> ReplicaDecision | None:
        """Return how many replicas the demand needs; None while there is no history."""
        if self.history is None:
            return None
        ready = min(present.ready, present.wanted)
        replicas = MeasuredReplicas(
            awake=present.wanted,
            ready=ready,
            prefill_tokens_per_second=1.0 / self.rates.seconds_per_token,
            itl_seconds=self.rates.itl_seconds(BUSY_REQUESTS),
            running=BUSY_REQUESTS,
            utilisation=self._utilisation(self.history, scale, present, ready),
            start_seconds=self.start_seconds,
            held_requests=present.held_requests,
            has_batches=present.has_batches,
            batch_replicas=present.batch_replicas,
            sleeping=present.sleeping,
            lent=present.lent,
            wake_seconds=present.wake_seconds,
            take_back_seconds=present.take_back_seconds,
        )
        decision = decide_replica_count(self.history, replicas, limits, now)
        self.history = note_replica_count(
            self.history,
            needed=decision.needed,
            change=decision.wanted - present.wanted,
            now=now,
        )
        return decision

    def _utilisation(
        self,
        history: LoadHistory,
        scale: ScaleRule,
        present: PresentReplicas,
        ready: int,
    ) -> float:
        """Return the share of its time that a replica may work, by its learned speed
        and the latencies of the last minute."""
        goals = LatencyGoals(
            ttft_p90=scale.ttft_p90_seconds, itl_p90=scale.itl_p90_seconds
        )
        if goals == LatencyGoals():
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
                ttft_p90=present.ttft_p90,
                itl_p90=present.itl_p90,
            ),
        )
        return target.utilisation


def replica_limits(
    scale: ScaleRule, least: int, most: int, *, least_sleeping: int = 0
) -> ReplicaLimits:
    """Return the limits of the number of replicas, and what decides their number."""
    rule, amount = ScaleMeasure.QUEUE, scale.queue or QUEUED_A_REPLICA
    if scale.ttft_p90_seconds is not None or scale.itl_p90_seconds is not None:
        rule, amount = ScaleMeasure.LATENCY, 1.0
    elif scale.rps is not None:
        rule, amount = ScaleMeasure.REQUESTS, scale.rps
    elif scale.tokens is not None:
        rule, amount = ScaleMeasure.TOKENS, scale.tokens
    return ReplicaLimits(
        least=least,
        most=max(1, most),
        least_sleeping=least_sleeping,
        rule=rule,
        amount=amount,
        down_after_seconds=scale.down_after_seconds,
        turn_seconds=2 * scale.down_after_seconds,
    )
