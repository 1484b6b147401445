"""B9: how often the interval told for a job's start holds, and how wide it is.

Run: .venv/bin/python benchmarks/sched/b9_intervals.py [--jobs 600] [--runs 60] [--json] [--write]

The traces of B1 on their clusters under the default policy. Of the jobs that cannot start at once,
every n-th is told an interval at its submission: the present played forward, corrected by the
record of those before it. A wait is from submission to the first start. An outcome joins the record
only when the job has started. Width is set against the waits' own 10 to 90 % range: that is the
interval that somebody would tell who knows nothing of the present.
To reach (issue 3): holds 78 to 83 %; median width <= half of the waits' own range.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from embedded import keep, report

from corral.replay import Workload
from corral.replay.forecast import Arrivals, present_of, waits
from corral.replay.interval import Interval, Kept, Record, drawn_interval, told_interval
from corral.replay.quantile import quantile
from corral.replay.replay import Event, replay, state_of_workload, world_of
from corral.replay.world import BEGAN_ON, NOW, advance_to, log_of
from corral.schedule.backlog import WAITING
from corral.schedule.order import DEFAULT, POLICIES
from corral.simulate.traces import read_trace, sizes_of

TRACES = Path(__file__).parents[3] / "shared" / "traces"
CLUSTERS = {"helios_venus": "72x8", "philly": "64x8"}
WARM = 0.1  # the first part of a trace teaches lengths and is not asked about


@dataclass(frozen=True, kw_only=True)
class Told:
    at: float
    drawn: list[float]
    started: float
    seconds: float  # that the forecast took


def first_starts(work: Workload, nodes: list[int]) -> dict[int, float]:
    """When each job first starts."""
    starts: dict[int, float] = {}

    def see(event: Event) -> None:
        if event.kind == BEGAN_ON:
            starts.setdefault(event.job, event.at)

    replay(work, nodes, POLICIES[DEFAULT], on_event=see)
    return starts


def forecasts(work: Workload, nodes: list[int], *, jobs: int, runs: int) -> list[Told]:
    """Forecasts for about so many jobs of those that wait, in the order of their submission."""
    named, starts = POLICIES[DEFAULT], first_starts(work, nodes)
    warm = int(WARM * len(work.submits))
    held_up = [row for row in range(warm, len(starts)) if starts[row] > work.submits[row]]
    world, state = world_of(work), state_of_workload(work, nodes, named)
    log = log_of(gpus=0, is_kept=False)
    found: list[Told] = []
    for row in held_up[:: max(1, len(held_up) // jobs)]:
        advance_to(named.policy, world, state, log, row + 1)
        if state.jobs.state[row] != WAITING:
            continue  # several came at once, and it has started meanwhile
        now, begun = float(world.number[NOW]), time.perf_counter()
        present, rows = present_of(named.policy, state)
        past = Arrivals(at=world.submits[:row], klass=state.jobs.klass[:row])
        drawn = waits(named.policy, present, rows.index(row), now, past, runs=runs, seed=row)
        took = time.perf_counter() - begun
        found.append(Told(at=now, drawn=drawn, started=starts[row], seconds=took))
    return found


def judge(found: list[Told]) -> tuple[list[Interval], list[float]]:
    """What was told, with the record as it was known then; and the waits."""
    record, open_ones, told = Record(), list[tuple[float, Kept]](), list[Interval]()
    for one in found:
        for outcome in sorted(open_ones, key=lambda pair: pair[0]):
            if outcome[0] <= one.at:
                record = record.after(outcome[1])
                open_ones.remove(outcome)
        drawn = drawn_interval(one.drawn)
        interval = told_interval(drawn, record)
        told.append(interval)
        kept = Kept(drawn=drawn, told=interval, actual=one.started - one.at)
        open_ones.append((one.started, kept))
    return told, [one.started - one.at for one in found]


def measure(trace: str, *, jobs: int, runs: int) -> dict[str, float]:
    work = read_trace(TRACES / f"{trace}.csv.gz").workload
    found = forecasts(work, sizes_of(CLUSTERS[trace]), jobs=jobs, runs=runs)
    told, actual = judge(found)
    ranked = sorted(actual)
    own = quantile(ranked, 0.9) - quantile(ranked, 0.1)
    widths = [interval.high - interval.low for interval in told]
    raw = [drawn_interval(one.drawn).holds(wait) for one, wait in zip(found, actual, strict=True)]
    held = [interval.holds(wait) for interval, wait in zip(told, actual, strict=True)]
    points = [statistics.median(one.drawn) for one in found]
    return {
        "jobs": len(found),
        "held": statistics.mean(held),
        "held_uncorrected": statistics.mean(raw),
        "width_s": statistics.median(widths),
        "own_range_s": own,
        "width_part": statistics.median(widths) / own,
        "point_error_s": statistics.median(
            abs(point - wait) for point, wait in zip(points, actual, strict=True)
        ),
        "forecast_s": statistics.median(one.seconds for one in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    found = {trace: measure(trace, jobs=args.jobs, runs=args.runs) for trace in CLUSTERS}
    if args.json:
        print(json.dumps(found))
        return
    rows = [
        row
        for trace, one in found.items()
        for row in (
            (f"{trace}: intervals that held", f"{one['held']:.1%}", "78 to 83 %"),
            (f"{trace}: before the correction", f"{one['held_uncorrected']:.1%}", ""),
            (f"{trace}: median width", f"{one['width_s']:.0f} s", ""),
            (f"{trace}: the waits' own 10 to 90 % range", f"{one['own_range_s']:.0f} s", ""),
            (f"{trace}: width over that range", f"{one['width_part']:.2f}", "<= 0.50"),
            (f"{trace}: median error of the middle", f"{one['point_error_s']:.0f} s", ""),
            (f"{trace}: time of a forecast", f"{one['forecast_s'] * 1000:.0f} ms", ""),
        )
    ]
    jobs = ", ".join(f"{one['jobs']:.0f} of {trace}" for trace, one in found.items())
    page = report("B9: when will it start", rows, f"{args.runs} runs a forecast; jobs: {jobs}.")
    keep("sched-b9", page, args.write)


if __name__ == "__main__":
    main()
