"""Capacity plan in three parts: GPU-hours from numbers in the request, a forecast of
the demand, and the nodes needed for short waits."""

from dataclasses import dataclass
from math import ceil
from typing import Annotated, Final

from corral.domain.errors import SpecInvalid
from corral.plan.bounds import DAYS, GPUS, NODE_GPUS, NumberBound, check
from corral.plan.capacity.demand import grown, loads
from corral.plan.capacity.forecast import DemandForecast, forecast, least_steps
from corral.plan.capacity.sizing import Play, Sized, WaitTarget, nodes_for_wait
from corral.plan.cost.hybrid import Demand, duration_curve
from corral.replay.workload import Workload

MONTH_HOURS: Final = 730.0
BUFFERS: Final = (0.3, 0.5)
HOUR: Final = 3_600.0
STEPS: Final = ((24.0, 7), (1.0, 24))  # hours of a step, and steps of its season
RUN_HOURS: Final = NumberBound(0.001, 1e5)
RUNS: Final = NumberBound(0.001, 1e6)  # a month
RUN_GPUS: Final = NumberBound(0.001, GPUS.most)
USABLE: Final = NumberBound(0.001, 1, hint="give a share of the hours, for example 0.8")
GROWTH: Final = NumberBound(0.001, 100)
HORIZON_DAYS: Final = 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleNeed:
    """Need for GPUs in simple numbers: one run takes `run_hours` on `run_gpus` GPUs,
    and there are `runs` a month. `usable`: the share of all hours in which a GPU can be
    kept busy."""

    run_hours: Annotated[float, RUN_HOURS]
    runs: Annotated[float, RUNS]
    run_gpus: Annotated[float, RUN_GPUS]
    node_gpus: Annotated[int, NODE_GPUS] = 8
    usable: Annotated[float, USABLE] = 1.0
    buffers: tuple[float, float] = BUFFERS

    def __post_init__(self) -> None:
        check(self)
        if not 0 <= self.buffers[0] <= self.buffers[1]:
            raise ValueError(
                f"the buffers {self.buffers} must be at least 0, the lower one first"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCapacity:
    """GPU-hours a month: `gpu_hours` without a buffer, and the low and high value with
    the two buffers.

    `low_gpus` and `high_gpus` are the GPUs, in whole nodes, that provide the low and
    the high value.
    """

    need: SimpleNeed
    gpu_hours: float
    low_gpu_hours: float
    high_gpu_hours: float
    low_gpus: int
    high_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequest:
    """Request for a capacity plan. `work`: the log of jobs. `play`: a function that
    replays jobs on a number of nodes. If `play` or the target wait is missing, nothing
    is replayed. `growth`: factor for the number of jobs in the replay. `gpus_now`:
    number of existing GPUs."""

    work: Workload
    node_gpus: Annotated[int, NODE_GPUS] = 8
    horizon_days: Annotated[float | None, DAYS] = None
    target: WaitTarget | None = None
    play: Play | None = None
    growth: Annotated[float, GROWTH] = 1.0
    gpus_now: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A capacity plan. `forecast` is None if the log is too short; `why_none` then has
    the reason. `demand`: the hours for which each load of whole GPUs lasted, the
    highest load first; `corral plan cost` uses it to mix owned and rented GPUs."""

    request: CapacityRequest
    gpu_hours_month: float
    forecast: DemandForecast | None
    why_none: str
    sized: Sized | None
    demand: Demand
    remarks: tuple[str, ...]


def simple_capacity(need: SimpleNeed) -> SimpleCapacity:
    """Return the GPU-hours a month, which are hours x runs x GPUs of a run, without and
    with buffers."""
    hours = need.run_hours * need.runs * need.run_gpus
    lower_hours, upper_hours = (hours * (1 + buffer) for buffer in need.buffers)

    def gpus(of: float) -> int:
        exact = of / (MONTH_HOURS * need.usable) / need.node_gpus
        return max(1, ceil(round(exact, 9))) * need.node_gpus

    return SimpleCapacity(
        need=need,
        gpu_hours=hours,
        low_gpu_hours=lower_hours,
        high_gpu_hours=upper_hours,
        low_gpus=gpus(lower_hours),
        high_gpus=gpus(upper_hours),
    )


def capacity(request: CapacityRequest) -> Capacity:
    """Return the capacity plan for a log of jobs.

    Raises: SpecInvalid if the log has no jobs; Conflict if no number of nodes meets the
    target wait.
    """
    check(request)
    work = request.work
    if not work.submits:
        raise SpecInvalid("the log has no job", hint="give a log with jobs that ended")
    remarks: list[str] = []
    demand_forecast, missing_reason = _forecast_demand(request, remarks)
    sized = None
    if request.target is not None and request.play is not None:
        remarks.append(
            "in the replay each job has the run time and submission time of the log"
        )
        if request.growth != 1:
            remarks.append(
                f"the log is replayed with {request.growth:g} times its jobs: added jobs are "
                "copies, whole weeks later"
            )
        sized = nodes_for_wait(
            grown(work, request.growth),
            request.target,
            node_gpus=request.node_gpus,
            play=request.play,
        )
    days = max(1.0, work.submits[-1] / 86_400)
    pairs = zip(work.durations, work.gpus, strict=True)
    hours = sum(seconds * gpus for seconds, gpus in pairs) / HOUR
    return Capacity(
        request=request,
        gpu_hours_month=hours / days * MONTH_HOURS / 24,
        forecast=demand_forecast,
        why_none=missing_reason,
        sized=sized,
        demand=duration_curve([float(ceil(load)) for load in loads(work, HOUR)]),
        remarks=tuple(remarks),
    )


def _forecast_demand(
    request: CapacityRequest, remarks: list[str]
) -> tuple[DemandForecast | None, str]:
    """Forecast the demand, in steps of days if the log is weeks long, else in steps of
    hours. Return the forecast and "", or None and the reason for that."""
    horizon_days = request.horizon_days
    for hours, season in STEPS:
        series = loads(request.work, hours * HOUR)
        requested_steps = max(1, round((horizon_days or HORIZON_DAYS) * 24 / hours))
        horizon = (
            requested_steps
            if horizon_days is not None
            else min(requested_steps, (len(series) - 2 * season) // 2)
        )
        if horizon < 1 or len(series) < least_steps(season, horizon):
            continue
        remarks.append(
            f"a job counts as demand from its submission on, even while it waited; "
            f"steps of {hours:g} h"
        )
        return forecast(series, step_hours=hours, season=season, horizon=horizon), ""
    days = request.work.submits[-1] / 86_400
    ahead = f" to look {horizon_days:g} days ahead" if horizon_days is not None else ""
    return None, f"no forecast: a log of {days:.1f} days is too short{ahead}"
