"""Number of replicas of a service: for the load expected when another replica can be ready,
not for the load of now."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Final

from corral.route.load_history import LOAD_BUCKET_SECONDS, LoadHistory, LoadRate

FAST_SECONDS: Final = 10
SLOW_SECONDS: Final = 60
FAST_ABOVE: Final = 1.3  # times the slow mean, from which the fast one counts
GROWTH_QUANTILE: Final = 0.9
DECISION_SECONDS: Final = 1.0  # between the load and the next decision
DRAIN_SECONDS: Final = (
    5.0  # within which requests that wait in the gateways are to be served
)
EMERGENCY: Final = 1.1  # times what the replicas take at their target
ROUNDING: Final = 1e-9


class ScaleMeasure(StrEnum):
    """Quantity that decides how much load one replica takes."""

    LATENCY = "latency"  # work, at the utilisation at which the latency goals hold
    QUEUE = "queue"  # requests outstanding
    REQUESTS = "rps"  # requests a second
    TOKENS = "tokens"  # new prompt tokens and output tokens a second


class ReplicaCause(StrEnum):
    """Cause of a decision about the number of replicas."""

    STEADY = "steady"  # the load needs as many as there are
    MORE_LOAD = "more_load"
    EMERGENCY = "emergency"  # more load than the replicas take, or requests wait
    FROM_ZERO = "from_zero"
    RECENTLY_NEEDED = "recently_needed"  # fewer would do, but not for long enough
    TURN_DELAYED = "turn_delayed"  # the direction changed a short time ago
    NOT_NEEDED = "not_needed"
    BELOW_LEAST = "below_least"
    ABOVE_MOST = "above_most"
    AT_MOST = "at_most"  # the load needs more than the limit allows


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """Limits of the number of replicas, from the spec of the service.

    Attributes:
        least: fewest awake replicas; 0: the service may go to zero.
        most: most replicas, awake and sleeping ones together.
        least_sleeping: replicas that are kept asleep, ready to wake.
        rule: quantity that decides.
        amount: amount of it that one replica takes; not used by the rule `latency`.
        down_after_seconds: time for which a replica must not have been needed.
        turn_seconds: shortest time between two changes of direction.
    """

    least: int = 1
    most: int
    least_sleeping: int = 0
    rule: ScaleMeasure = ScaleMeasure.LATENCY
    amount: float = 1.0
    down_after_seconds: float = 300.0
    turn_seconds: float = 600.0

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most or self.most < 1:
            raise ValueError(f"not 0 <= {self.least} <= {self.most}, 1 <= {self.most}")
        if self.least_sleeping < 0 or self.amount <= 0:
            raise ValueError(
                f"sleeping {self.least_sleeping} and amount {self.amount} are refused"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredReplicas:
    """Replicas of a service, and their learned speeds and times.

    Attributes:
        awake: replicas that serve, wake or start.
        ready: replicas among them that serve.
        sleeping: replicas that sleep.
        lent: replicas among the sleeping ones whose GPUs another job uses.
        prefill_tokens_per_second: R, tokens that one replica prefills a second.
        itl_seconds: inter-token latency with `running` requests.
        running: requests that generate tokens together in a busy replica.
        utilisation: share of its time that a replica may work, see
            `target_utilisation.py`.
        wake_seconds: time from asleep to ready; None: the replicas cannot sleep.
        take_back_seconds: time until a lent replica is ready.
        start_seconds: time until a new replica is ready.
        held_requests: requests that wait in the gateways, without those of batches.
        has_batches: whether batches have work left; then one replica is awake.
        batch_replicas: replicas that they need by their deadlines, as a fraction.
    """

    awake: int
    ready: int
    sleeping: int = 0
    lent: int = 0
    prefill_tokens_per_second: float = 8000.0
    itl_seconds: float = 0.02
    running: float = 8.0
    utilisation: float = 0.7
    wake_seconds: float | None = None
    take_back_seconds: float = 10.0
    start_seconds: float = 60.0
    held_requests: int = 0
    has_batches: bool = False
    batch_replicas: float = 0.0

    def __post_init__(self) -> None:
        rates = (self.prefill_tokens_per_second, self.running, self.utilisation)
        if min(rates) <= 0 or self.itl_seconds < 0:
            raise ValueError(f"rates must be positive: {self}")
        if not 0 <= self.ready <= self.awake or not 0 <= self.lent <= self.sleeping:
            raise ValueError(f"the replicas do not add up: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDecision:
    """Number of replicas that a service should have.

    Attributes:
        wanted: replicas that serve, wake or start.
        sleeping: replicas that sleep.
        needed: replicas that the load needs, without waiting requests and delays.
        cause: what decided.
        reason: a sentence for people.
    """

    wanted: int
    sleeping: int
    needed: int
    cause: ReplicaCause
    reason: str


def decide_replica_count(
    history: LoadHistory,
    measured: MeasuredReplicas,
    limits: ReplicaLimits,
    now: float,
) -> ReplicaDecision:
    """Return how many replicas the service should have awake and asleep.

    The need is `(load + growth) / load that one replica takes`. The load is that of the
    last 10 s where it is 30 % above that of the last 60 s, otherwise that of 60 s. The
    growth is the 0.9 quantile of the growth in the last hour, over the time until another
    replica can be ready. Going down waits until the need was lower for 300 s. The
    direction changes at most once in 10 minutes, unless the replicas have more load than
    they take. The caller records the decision with `note_replica_count`.
    """
    forecast = _forecast(history, measured, limits)
    capacity = _capacity(measured, limits)
    most = max(1, limits.most)
    least = limits.least
    is_used = measured.held_requests or history.mean_rate(FAST_SECONDS).outstanding
    if is_used or measured.has_batches:
        least = max(least, 1)
    # batches work in what the other requests leave
    batch = measured.batch_replicas - ROUNDING
    unbounded = ceil((forecast.load + forecast.waiting) / capacity + batch)
    allowed = min(most, max(least, unbounded))
    needed = ceil(forecast.load / capacity + batch)
    wanted, cause = _wanted(history, measured, limits, now, forecast, allowed)
    if cause is ReplicaCause.STEADY and unbounded > most:
        cause = ReplicaCause.AT_MOST
    return ReplicaDecision(
        wanted=wanted,
        sleeping=_sleeping(history, measured, limits, wanted),
        needed=min(most, max(least, needed)),
        cause=cause,
        reason=_reason(wanted, cause, forecast, capacity, measured, limits),
    )


@dataclass(frozen=True, slots=True)
class _Forecast:
    load: float  # in the unit of the rule, when another replica can be ready
    growth: float  # part of the load that is expected until then
    waiting: float  # load beyond it, to serve requests that wait in the gateways
    span_seconds: float


def _forecast(
    history: LoadHistory, measured: MeasuredReplicas, limits: ReplicaLimits
) -> _Forecast:
    amount_of = _amount_of(measured, limits)
    fast = amount_of(history.mean_rate(FAST_SECONDS))
    slow_rate = history.mean_rate(SLOW_SECONDS)
    slow = amount_of(slow_rate)
    is_rising = fast > FAST_ABOVE * slow
    load = fast if is_rising else slow
    age = (FAST_SECONDS if is_rising else SLOW_SECONDS) / 2  # of a mean
    span = _span_seconds(measured)
    if not slow_rate.requests:
        return _Forecast(load, 0.0, 0.0, span)
    growth = _growth(history, amount_of, span + age)
    waiting = 0.0
    if limits.rule is not ScaleMeasure.QUEUE:  # which counts waiting requests already
        of_each = slow / slow_rate.requests
        waiting = max(0.0, measured.held_requests * of_each / DRAIN_SECONDS - growth)
    return _Forecast(load + growth, growth, waiting, span)


def _amount_of(
    measured: MeasuredReplicas, limits: ReplicaLimits
) -> Callable[[LoadRate], float]:
    """Return the function that measures a load in the unit of the rule."""
    match limits.rule:
        case ScaleMeasure.QUEUE:
            return lambda rate: rate.outstanding
        case ScaleMeasure.REQUESTS:
            return lambda rate: rate.requests
        case ScaleMeasure.TOKENS:
            return lambda rate: rate.new_tokens + rate.output_tokens
        case ScaleMeasure.LATENCY:
            of_prompt = 1.0 / measured.prefill_tokens_per_second
            of_output = measured.itl_seconds / measured.running
            return lambda rate: (
                rate.new_tokens * of_prompt + rate.output_tokens * of_output
            )


def _capacity(measured: MeasuredReplicas, limits: ReplicaLimits) -> float:
    is_latency = limits.rule is ScaleMeasure.LATENCY
    return measured.utilisation if is_latency else limits.amount


def _span_seconds(measured: MeasuredReplicas) -> float:
    """Return the time until another replica is ready, in the cheapest way there is."""
    seconds = measured.start_seconds
    if measured.lent:
        seconds = min(seconds, measured.take_back_seconds)
    if measured.wake_seconds is not None and measured.sleeping > measured.lent:
        seconds = min(seconds, measured.wake_seconds)
    return seconds + DECISION_SECONDS


def _growth(
    history: LoadHistory, amount_of: Callable[[LoadRate], float], span: float
) -> float:
    """Return the growth that 9 of 10 spans of the last hour did not exceed.

    A mean over a bucket grows in a part of the bucket's time by that part only.
    """
    amounts = [amount_of(rate) for rate in history.buckets]
    steps = max(1, ceil(span / LOAD_BUCKET_SECONDS))
    growths = sorted(
        later - earlier
        for earlier, later in zip(amounts, amounts[steps:], strict=False)
    )
    if not growths:
        return 0.0
    growth = growths[min(len(growths) - 1, int(GROWTH_QUANTILE * len(growths)))]
    return max(0.0, growth) * min(1.0, span / LOAD_BUCKET_SECONDS)


def _wanted(
    history: LoadHistory,
    measured: MeasuredReplicas,
    limits: ReplicaLimits,
    now: float,
    forecast: _Forecast,
    allowed: int,
) -> tuple[int, ReplicaCause]:
    """Return the wanted number of awake replicas, from the one that the load needs."""
    awake = measured.awake
    if awake < limits.least:
        return max(allowed, limits.least), ReplicaCause.BELOW_LEAST
    if awake > limits.most:
        return limits.most, ReplicaCause.ABOVE_MOST
    if allowed > awake:
        if not measured.ready:  # one start, however many requests wait for it
            if awake:
                return awake, ReplicaCause.STEADY
            return max(1, limits.least), ReplicaCause.FROM_ZERO
        takes = awake * _capacity(measured, limits)
        if measured.held_requests or forecast.load > EMERGENCY * takes:
            return allowed, ReplicaCause.EMERGENCY
        if _may_go(1, history, limits, now):
            return allowed, ReplicaCause.MORE_LOAD
        return awake, ReplicaCause.TURN_DELAYED
    if history.age_seconds < limits.down_after_seconds:
        floor = awake
    else:
        floor = max(allowed, history.most_needed(limits.down_after_seconds))
    floor = min(awake, max(floor, limits.least))
    if allowed == awake:
        return awake, ReplicaCause.STEADY
    if floor == awake:
        return awake, ReplicaCause.RECENTLY_NEEDED
    if not _may_go(-1, history, limits, now):
        return awake, ReplicaCause.TURN_DELAYED
    return floor, ReplicaCause.NOT_NEEDED


def _may_go(
    direction: int, history: LoadHistory, limits: ReplicaLimits, now: float
) -> bool:
    if history.direction in (0, direction) or history.turned_at is None:
        return True
    return now - history.turned_at >= limits.turn_seconds


def _sleeping(
    history: LoadHistory,
    measured: MeasuredReplicas,
    limits: ReplicaLimits,
    wanted: int,
) -> int:
    """Return how many sleep: those that the last hour needed, and the spare ones."""
    if measured.wake_seconds is None:
        return 0
    existing = measured.awake + measured.sleeping - wanted
    needed = max(history.needs) - wanted
    sleeping = max(min(existing, needed), limits.least_sleeping, 0)
    if history.age_seconds < limits.down_after_seconds:
        sleeping = max(sleeping, min(existing, measured.sleeping))
    return max(0, min(sleeping, limits.most - wanted))


def _reason(
    wanted: int,
    cause: ReplicaCause,
    forecast: _Forecast,
    capacity: float,
    measured: MeasuredReplicas,
    limits: ReplicaLimits,
) -> str:
    count = f"{wanted} replica" if wanted == 1 else f"{wanted} replicas"
    load = (
        f"the load of {_amount(forecast.load, limits)}, of which "
        f"{forecast.growth:.3g} is growth expected within {forecast.span_seconds:.0f} s"
    )
    if measured.has_batches:
        load += f", with {measured.batch_replicas:.2g} replicas for batches in time"
    of_each = f"one replica takes {capacity:.3g}"
    match cause:
        case ReplicaCause.STEADY:
            return f"{count} as before: {load}, needs no other number; {of_each}."
        case ReplicaCause.MORE_LOAD:
            return f"{count}, up from {measured.awake}: {load}, needs them; {of_each}."
        case ReplicaCause.EMERGENCY:
            waiting = f" and {measured.held_requests} requests wait in the gateway"
            return (
                f"{count}, up from {measured.awake} at once: {load}, is more than they "
                f"take{waiting if measured.held_requests else ''}; {of_each}."
            )
        case ReplicaCause.FROM_ZERO:
            what = "requests arrive"
            if measured.has_batches and not measured.held_requests:
                what = "a batch waits"
            return f"{count}, up from zero: {what} and no replica is awake."
        case ReplicaCause.RECENTLY_NEEDED:
            return (
                f"{count} as before: fewer would do, but not yet for "
                f"{limits.down_after_seconds:.0f} s."
            )
        case ReplicaCause.TURN_DELAYED:
            return (
                f"{count} as before: the direction changed less than "
                f"{limits.turn_seconds:.0f} s ago and no request has to wait."
            )
        case ReplicaCause.NOT_NEEDED:
            return (
                f"{count}, down from {measured.awake}: the last "
                f"{limits.down_after_seconds:.0f} s needed no more."
            )
        case ReplicaCause.BELOW_LEAST:
            return f"{count}, up from {measured.awake}: the least is {limits.least}."
        case ReplicaCause.ABOVE_MOST:
            return f"{count}, down from {measured.awake}: the most is {limits.most}."
        case ReplicaCause.AT_MOST:
            return f"{count}, the most that are allowed: {load}, needs more; {of_each}."


def _amount(load: float, limits: ReplicaLimits) -> str:
    match limits.rule:
        case ScaleMeasure.LATENCY:
            return f"{load:.3g} replica-seconds of work a second"
        case ScaleMeasure.QUEUE:
            return f"{load:.3g} requests outstanding"
        case ScaleMeasure.REQUESTS:
            return f"{load:.3g} requests a second"
        case ScaleMeasure.TOKENS:
            return f"{load:.3g} tokens a second"
