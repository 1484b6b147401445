"""plan capacity: how many GPUs will be needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.cli.common import DIR
from corral.cli.failure import Usage
from corral.cli.output import note
from corral.cli.planner.output import Out
from corral.cli.replayed import replayed
from corral.domain.errors import SpecInvalid
from corral.domain.units import seconds_of

if TYPE_CHECKING:
    from corral.plan.report import Report
    from corral.plan.sizing import Play, WaitTarget
    from corral.replay import Outcome, Workload
    from corral.simulate.logs.traces import Trace

_OWN = Parameter(negative="", show_default=False)
RESTART_SECONDS = 60.0  # what a preempted job loses in a replay, as in corral simulate


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """Runs that are known.

    Attributes:
        run_hours: Of one run, by hand.
        runs: Runs a month, by hand.
        run_gpus: GPUs of a run, by hand.
        usable: Share of the hours in which a GPU can be kept busy, by hand.
    """

    run_hours: float | None = None
    runs: float | None = None
    run_gpus: float | None = None
    usable: float = 1.0

    @property
    def told(self) -> tuple[float, ...]:
        runs = (self.run_hours, self.runs, self.run_gpus)
        return tuple(one for one in runs if one is not None)


def capacity(
    *,
    history: Path | None = None,
    own: Annotated[bool, _OWN] = False,
    by_hand: ByHand | None = None,
    node_gpus: int = 8,
    horizon_days: float | None = None,
    wait: str | None = None,
    share: float = 0.9,
    growth: float = 1.0,
    policy: str = "",
    dir: Annotated[Path | None, DIR] = None,
    out: Out | None = None,
) -> None:
    """Say how many GPUs will be needed: by hand, by a forecast, and for short waits.

    By hand: --run-hours 20 --runs 30 --run-gpus 16. By history: a forecast of the demand, held
    against what the same weekday was before, with its intervals; and with --wait the fewest GPUs on
    which so many jobs wait no longer, found by replaying the history through the scheduler.

    Args:
        history: CSV with a header, SWF, or what sacct -P or corral ps --all --json prints; or .gz.
        own: Instead what this cluster has run, and what was imported.
        node_gpus: GPUs of a node.
        horizon_days: How far to look ahead.
        wait: No longer than this, for example 30m: how many GPUs it takes.
        share: Of the jobs that are to wait no longer.
        growth: Times the jobs of the history, in the replay.
        policy: Of the replay; else as live queues go: corral simulate --help.
    """
    runs, shown = by_hand or ByHand(), out or Out()
    if history is None and not own:
        shown.show(_simple(runs, node_gpus))
        return
    if runs.told:
        raise Usage("a history and runs by hand both say what is needed", hint="give one of them")
    from corral.plan.capacity import CapacityRequest
    from corral.plan.capacity import capacity as found_of
    from corral.plan.capacity_report import report

    found, here = _history(history, own=own, dir=dir)
    request = CapacityRequest(
        work=found.workload,
        node_gpus=node_gpus,
        horizon_days=horizon_days,
        target=_target(wait, share),
        play=_play(policy) if wait is not None else None,
        growth=growth,
        gpus_now=sum(here) or None,
    )
    shown.show(report(found_of(request)))


def _simple(runs: ByHand, node_gpus: int) -> "Report":
    from corral.plan.capacity import SimpleNeed, simple_capacity
    from corral.plan.capacity_report import simple_report

    if len(runs.told) < 3:
        hint = "give --history FILE, or --own, or --run-hours, --runs and --run-gpus"
        raise Usage("nothing says what will be needed", hint=hint)
    run_hours, number, run_gpus = runs.told
    need = SimpleNeed(
        run_hours=run_hours,
        runs=number,
        run_gpus=run_gpus,
        node_gpus=node_gpus,
        usable=runs.usable,
    )
    return simple_report(simple_capacity(need))


def _history(history: Path | None, *, own: bool, dir: Path | None) -> "tuple[Trace, Sequence[int]]":
    """The log, and the GPUs of each node that is here."""
    from corral.simulate.logs.traces import read_trace

    if own:
        found, (here, _) = replayed(history, None, None, own=True, dir=dir)
    else:
        found, here = read_trace(history or Path()), []
    if found.skipped:
        note(f"{found.skipped} rows have no GPUs or never ended: they are not counted")
    return found, here


def _target(wait: str | None, share: float) -> "WaitTarget | None":
    from corral.plan.sizing import WaitTarget

    if wait is None:
        return None
    try:
        seconds = seconds_of(wait)
    except ValueError as error:
        raise SpecInvalid(f"--wait: {error}", hint="write for example --wait 30m") from error
    return WaitTarget(seconds=seconds, share=share)


def _play(policy: str) -> "Play":
    from corral.replay import compiles_first, replay
    from corral.simulate.logs.policies import chosen

    (named,) = chosen([policy] if policy else [], None, RESTART_SECONDS).values()
    if compiles_first():
        note("compiling once (about a minute); the next replays begin at once")

    def play(work: "Workload", nodes: Sequence[int]) -> "Outcome":
        return replay(work, nodes, named)

    return play
