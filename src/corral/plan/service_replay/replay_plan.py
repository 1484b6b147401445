"""Replay of a trace on the GPUs that the planner chooses for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from corral.catalog.prices import PriceList
from corral.domain.errors import SpecInvalid
from corral.domain.service import ScaleRule
from corral.perf.replicas import most_sequences
from corral.perf.serving import Load
from corral.plan.serve.plan import HOUR, MILLION, ReplicaSet, ServeRequest, plan_serve
from corral.plan.serve.roles import RolesEstimate, estimate_roles
from corral.plan.service_replay.modelled_steps import ModelledSteps
from corral.plan.service_replay.replay import ReplayedService, replay_trace
from corral.plan.service_replay.trace_outcome import TraceOutcome
from corral.plan.service_replay.trace_request import (
    TraceRequest,
    TraceSummary,
    summary_of,
)

SPARE: Final = 3  # times the replicas that the mean load needs, without a range
LEAST_RATE: Final = 0.001  # requests a second that the planner accepts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """Request for the replay of a trace.

    Attributes:
        serve: model, GPU type, targets and prices; its rate and lengths are replaced by
            the means of the trace.
        scale_text: the rule as a spec of a service has it.
        replicas: fewest and most replicas; None: from 1 to three times what the mean
            load needs.
        start_seconds: time until a new replica is ready.
    """

    serve: ServeRequest
    scale: ScaleRule = field(default_factory=ScaleRule)
    scale_text: str = "{queue: 4}"
    replicas: tuple[int, int] | None = None
    start_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """Outcome of a replay, and the replicas on which it ran.

    Attributes:
        fleet: replicas that the planner chooses for a steady load of the same mean.
        first: replicas that were ready when the replay began: those that the mean load
            needs, within the range.
        usd: cost of the GPU-hours; None without a price.
        roles: estimate of prefill and decode on replicas of their own; None: too few
            replicas, or too much load.
    """

    request: ReplayRequest
    trace: TraceSummary
    fleet: ReplicaSet
    least: int
    most: int
    first: int
    outcome: TraceOutcome
    usd: float | None
    roles: RolesEstimate | None

    @property
    def gpu_hours(self) -> float:
        return self.outcome.replica_seconds * self.fleet.replica.gpus / HOUR

    @property
    def usd_per_million(self) -> float | None:
        """Return the USD for a million output tokens; None without a price."""
        tokens = self.outcome.output_tokens
        return None if self.usd is None or not tokens else self.usd / tokens * MILLION


def plan_replay(
    request: ReplayRequest,
    requests: Sequence[TraceRequest],
    *,
    listed: PriceList | None = None,
) -> ReplayPlan:
    """Replay the requests of a trace, which are in the order of their arrival.

    The type of GPU, if none is requested, and the number of GPUs of a replica are those
    of `plan_serve` for a steady load of the same means. Each replica holds the longest
    request of the trace. `listed`: prices, instead of the catalog's.

    Raises: as plan_serve; SpecInvalid if the options do not fit the trace.
    """
    trace = summary_of(requests)
    serve = _mean_request(request.serve, trace)
    fleet = plan_serve(serve, listed=listed, longest=trace.longest).best
    least, most = request.replicas or (1, max(2, SPARE * fleet.replicas))
    first = min(most, max(least, fleet.replicas))
    replica = fleet.replica
    context = serve.input + serve.output
    fitting = most_sequences(replica, context) * context
    service = ReplayedService(
        times=ModelledSteps(replica),
        limits=fleet.limits,
        cache_tokens=max(fitting, trace.longest),
        request_seconds=replica.engine.request_seconds,
        scale=request.scale,
        least=least,
        most=most,
        first=first,
        start_seconds=request.start_seconds,
        shared_tokens=serve.shared,
    )
    outcome = replay_trace(service, requests)
    hourly = None
    if fleet.usd_per_hour is not None:
        hourly = fleet.usd_per_hour / fleet.replicas
    return ReplayPlan(
        request=request,
        trace=trace,
        fleet=fleet,
        least=least,
        most=most,
        first=first,
        outcome=outcome,
        usd=None if hourly is None else hourly * outcome.replica_seconds / HOUR,
        roles=_roles(serve, trace, fleet, outcome),
    )


def _mean_request(serve: ServeRequest, trace: TraceSummary) -> ServeRequest:
    """Return the request for a steady load of the trace's means.

    Raises: SpecInvalid if the shared tokens contradict the trace.
    """
    if serve.shared and trace.has_blocks:
        raise SpecInvalid(
            "--shared cannot be combined with a trace that has hash_ids, which say what "
            "prompts share",
            hint="leave out --shared",
        )
    return replace(
        serve,
        qps=max(LEAST_RATE, trace.rate),
        input=max(1, round(trace.prompt_tokens)),
        output=max(1, round(trace.output_tokens)),
    )


def _roles(
    serve: ServeRequest, trace: TraceSummary, fleet: ReplicaSet, outcome: TraceOutcome
) -> RolesEstimate | None:
    load = Load(
        rate=trace.rate,
        prompt=trace.prompt_tokens,
        output=trace.output_tokens,
        shared=outcome.hit_share * trace.prompt_tokens,
    )
    return estimate_roles(
        fleet.replica,
        fleet.limits,
        load,
        ceil(outcome.mean_replicas),
        None if serve.ttft_p90 is None else serve.ttft_p90 / 1e3,
        None if serve.itl_p90 is None else serve.itl_p90 / 1e3,
    )
