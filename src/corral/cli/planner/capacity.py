"""The command plan capacity: how many GPUs will be needed."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from corral.cli.error_output import Usage
from corral.cli.head_options import DIR
from corral.cli.option_types import (
    Days,
    Duration,
    Factor,
    Fraction,
    Hours,
    Number,
    Policy,
    WholeNumber,
)
from corral.cli.planner.output import Out
from corral.cli.printing import note
from corral.cli.progress import WorkProgress, progress
from corral.cli.replay_input import replayed as of_log
from corral.domain.errors import SpecInvalid
from corral.domain.units import counted, seconds_of

if TYPE_CHECKING:
    from corral.plan.capacity.sizing import Play, WaitTarget
    from corral.plan.report import PlannerReport
    from corral.replay import ReplayOutcome, Workload
    from corral.traces.traces import Trace

_OWN = Parameter(negative="", show_default=False)
OTHERWISE: Final = "add --history FILE, or --own for the history of this cluster"
RESTART_SECONDS = 60.0  # what a preempted job loses in a replay, as in corral simulate


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """Planned runs, for a forecast from numbers that the user gives instead of a
    history.

    Attributes:
        run_hours: Hours of one planned run.
        runs: Number of planned runs a month.
        run_gpus: GPUs of one planned run.
        usable: Share of all hours in which a GPU can be kept busy, for planned runs.
    """

    run_hours: Hours | None = None
    runs: Number | None = None
    run_gpus: Number | None = None
    usable: Fraction = 1.0


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Settings of the replay of a history.

    Attributes:
        wait: Compute how many GPUs are needed so that jobs wait no longer than this,
            for example 30m.
        share: Share of the jobs that must wait no longer than --wait.
        growth: Factor by which the replay multiplies the number of jobs of the history.
        policy: Scheduling policy of the replay (default: as the live queues schedule);
            see corral simulate --help.
    """

    wait: Duration | None = None
    share: Fraction = 0.9
    growth: Factor = 1.0
    policy: Policy = ""


def capacity(
    *,
    history: Path | None = None,
    own: Annotated[bool, _OWN] = False,
    by_hand: ByHand | None = None,
    node_gpus: WholeNumber = 8,
    horizon_days: Days | None = None,
    replayed: Replayed | None = None,
    dir: Annotated[Path | None, DIR] = None,
    out: Out | None = None,
) -> None:
    """Compute how many GPUs will be needed: for planned runs, by a forecast from a
    history, and for short waits. A forecast is compared with the same weekday before.

    Args:
        history: CSV file with submit_s, duration_s and gpus in its header, SWF file, or
            the output of sacct -P or corral ps --all --json; may be gzipped.
        own: Use this cluster's history, including imported jobs.
        node_gpus: GPUs of a node.
        horizon_days: Number of days to forecast.
    """
    runs, how, output = by_hand or ByHand(), replayed or Replayed(), out or Out()
    output.apart_from(history)
    ahead = [] if horizon_days is None else ["--horizon-days"]
    if history is None and not own:
        _refuse_options(
            [*_given_option_names(how), *ahead],
            "can be used only with --history or --own",
            OTHERWISE,
        )
        output.show(_simple_capacity_report(runs, node_gpus))
        return
    _check_history_options(runs, how)
    from corral.plan.capacity.plan import CapacityRequest
    from corral.plan.capacity.plan import capacity as found_of
    from corral.plan.capacity.report import report

    with progress("reading the history", shown=not output.json) as work_progress:
        trace, node_gpu_counts = _load_history(history, own=own, dir=dir)
        work_progress.doing = (
            f"forecasting the demand of {counted(len(trace.workload.submits), 'job')}"
        )
        request = CapacityRequest(
            work=trace.workload,
            node_gpus=node_gpus,
            horizon_days=horizon_days,
            target=_parse_wait_target(how.wait, how.share),
            play=_make_replay_function(how.policy, work_progress)
            if how.wait is not None
            else None,
            growth=how.growth,
            gpus_now=sum(node_gpu_counts) or None,
        )
        answer = found_of(request)
    output.show(report(answer))


def _check_history_options(runs: ByHand, how: Replayed) -> None:
    """Refuse options that have no effect with a history: planned runs, or `how` without
    --wait. Raises: Usage."""
    _refuse_options(
        _given_option_names(runs),
        "cannot be combined with --history or --own",
        "leave out either the planned runs or the history",
    )
    if how.wait is None:
        _refuse_options(
            _given_option_names(how),
            "can be used only with --wait",
            "add for example --wait 30m",
        )


def _given_option_names(options: ByHand | Replayed) -> list[str]:
    """Return the names of the options that the user gave, as they are typed."""
    from corral.plan.bounds import option

    given_fields = (
        field
        for field in fields(options)
        if getattr(options, field.name) != field.default
    )
    return [option(field.name) for field in given_fields]


def _refuse_options(options: Sequence[str], why: str, hint: str) -> None:
    """Raise an error that names the options, if any, because they would have no effect.

    Raises: Usage if there is such an option.
    """
    if options:
        raise Usage(f"{' and '.join(options)} {why}", hint=hint)


def _simple_capacity_report(runs: ByHand, node_gpus: int) -> "PlannerReport":
    from corral.plan.capacity.plan import SimpleNeed, simple_capacity
    from corral.plan.capacity.report import simple_report

    hours, number, gpus = runs.run_hours, runs.runs, runs.run_gpus
    if hours is None or number is None or gpus is None:
        option_values = {"--run-hours": hours, "--runs": number, "--run-gpus": gpus}
        missing = [name for name, value in option_values.items() if value is None]
        message = f"{' and '.join(missing)} must be given too"
        if not _given_option_names(runs):
            message = "neither planned runs nor a history were given"
        raise Usage(
            message,
            hint="add for example --run-hours 20 --runs 30 --run-gpus 16, or "
            + OTHERWISE,
        )
    need = SimpleNeed(
        run_hours=hours,
        runs=number,
        run_gpus=gpus,
        node_gpus=node_gpus,
        usable=runs.usable,
    )
    return simple_report(simple_capacity(need))


def _load_history(
    history: Path | None, *, own: bool, dir: Path | None
) -> "tuple[Trace, Sequence[int]]":
    """Return (log of jobs, GPUs of each node). With `own`, both are this cluster's;
    otherwise the second list is empty."""
    from corral.traces.traces import read_trace

    if own:
        trace, (node_gpu_counts, _) = of_log(history, None, None, own=True, dir=dir)
    else:
        trace, node_gpu_counts = read_trace(history or Path()), []
    if trace.skipped:
        note(
            f"not counted: {counted(trace.skipped, 'row')} of the history without GPUs "
            "or an end"
        )
    return trace, node_gpu_counts


def _parse_wait_target(wait: str | None, share: float) -> "WaitTarget | None":
    from corral.plan.capacity.sizing import WaitTarget

    if wait is None:
        return None
    try:
        seconds = seconds_of(wait)
    except ValueError as error:
        raise SpecInvalid(
            f"--wait: {error}", hint="write for example --wait 30m"
        ) from error
    return WaitTarget(seconds=seconds, share=share)


def _make_replay_function(policy: str, at: WorkProgress) -> "Play":
    from corral.replay import compiles_first, replay
    from corral.traces.policies import chosen

    (replay_policy,) = chosen(
        [policy] if policy else [], None, RESTART_SECONDS
    ).values()
    compiling = ""
    if compiles_first():
        note("compiling the replay (about a minute); later replays start at once")
        compiling = "compiling, then "

    def play(work: "Workload", nodes: Sequence[int]) -> "ReplayOutcome":
        nonlocal compiling
        at.doing = (
            f"{compiling}replaying {counted(len(work.submits), 'job')} on "
            f"{counted(len(nodes), 'node')}"
        )
        compiling = ""
        return replay(work, nodes, replay_policy)

    return play
