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
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from embedded import keep, report
from intervals import CLUSTERS, TRACES, Told, numbers_of, rows_of

from corral.replay import Workload
from corral.replay.array_replay import ReplayEvent, replay, state_of_workload, world_of
from corral.replay.array_world import BEGAN_ON, NOW, advance_to, log_of
from corral.replay.forecast import Arrivals, present_of, waits
from corral.schedule.columns.job_groups import WAITING
from corral.schedule.columns.order import DEFAULT, POLICIES
from corral.traces.traces import read_trace, sizes_of

WARM = 0.1  # the first part of a trace teaches lengths and is not asked about


def first_starts(work: Workload, nodes: list[int]) -> dict[int, float]:
    """When each job first starts."""
    starts: dict[int, float] = {}

    def see(event: ReplayEvent) -> None:
        if event.kind == BEGAN_ON:
            starts.setdefault(event.job, event.at)

    replay(work, nodes, POLICIES[DEFAULT], on_event=see)
    return starts


def forecasts(work: Workload, nodes: list[int], *, jobs: int, runs: int) -> list[Told]:
    """Forecasts for about so many jobs of those that wait, in the order of their submission."""
    named, starts = POLICIES[DEFAULT], first_starts(work, nodes)
    warm = int(WARM * len(work.submits))
    held_up = [
        row for row in range(warm, len(starts)) if starts[row] > work.submits[row]
    ]
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
        drawn = waits(
            named.policy, present, rows.index(row), now, past, runs=runs, seed=row
        )
        took = time.perf_counter() - begun
        found.append(Told(at=now, drawn=drawn, started=starts[row], seconds=took))
    return found


def measure(trace: str, *, jobs: int, runs: int) -> dict[str, float]:
    work = read_trace(TRACES / f"{trace}.csv.gz").workload
    return numbers_of(forecasts(work, sizes_of(CLUSTERS[trace]), jobs=jobs, runs=runs))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    found = {
        trace: measure(trace, jobs=args.jobs, runs=args.runs) for trace in CLUSTERS
    }
    if args.json:
        print(json.dumps(found))
        return
    rows = [row for trace, one in found.items() for row in rows_of(trace, one)]
    jobs = ", ".join(f"{one['jobs']:.0f} of {trace}" for trace, one in found.items())
    page = report(
        "B9: when will it start", rows, f"{args.runs} runs a forecast; jobs: {jobs}."
    )
    keep("sched-b9", page, args.write)


if __name__ == "__main__":
    main()
