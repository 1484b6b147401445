"""B9 by the live decision: how often the interval told for a job's start holds, and how wide it is.

Run: .venv/bin/python benchmarks/sched/forecast_traces.py [--jobs 300] [--runs 20] [--of 15000]
     [--trace T] [--json] [--write]

Stretches of the traces of B1 on their clusters, decided by the live decision (`replay.live_replay`)
in one queue of the default policy. Of the jobs that cannot start at once, every n-th is asked about
at its submission as a head does it (`replay.start_distribution`): the present played forward,
corrected by the record of those before it. A wait is from submission to the first start. An outcome
joins the record only when the job has started. Width is set against the waits' own 10 to 90 %
range: that is the interval that somebody would tell who knows nothing of the present. To reach
(issue 3): holds 78 to 83 %; median width <= half of the waits' own range."""

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from embedded import keep, report
from intervals import CLUSTERS, TRACES, Told, numbers_of, rows_of

from corral.domain.ids import JobId
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.run_history import Ran
from corral.replay import Workload
from corral.replay.live_replay import Play
from corral.replay.queue_replay import coming_of, node_of
from corral.replay.runtime_history import RuntimeHistory
from corral.replay.snapshot import Coming, Happened, JobClass, Present
from corral.replay.start_distribution import RunTimeKnowledge, outlook
from corral.schedule import Waiting
from corral.schedule.prediction.runtime_model import MOST_ENDED, Lessons
from corral.traces.traces import read_trace, sizes_of

FIRST = {
    "helios_venus": 15_000,
    "philly": 5_000,
}  # row of each where the stretch begins
WARM = 0.3  # the first part of a stretch teaches lengths and is not asked about
MOST_PASSES = 2_000  # of one run, as for a head


@dataclass(frozen=True, kw_only=True)
class Asked:
    at: float
    drawn: list[float]
    job: JobId
    seconds: float  # of CPU time, that the forecast took


@dataclass
class Town:
    """What has happened: first starts, and the newest ended jobs in the order of their ends."""

    coming: list[Coming]
    began: dict[JobId, float] = field(default_factory=dict)
    since: dict[JobId, float] = field(default_factory=dict)
    held: dict[JobId, float] = field(default_factory=dict)
    runs: list[Ran] = field(default_factory=list)

    def hear(self, one: Happened) -> None:
        if one.kind == JobClass.STARTED:
            self.began.setdefault(one.job, one.at)
            self.since[one.job] = one.at
            return
        ran = one.at - self.since.pop(one.job)
        self.held[one.job] = self.held.get(one.job, 0.0) + ran
        if one.kind == JobClass.ENDED:
            self.runs.append(self._ran(one))

    def _ran(self, one: Happened) -> Ran:
        came = self.coming[int(one.job)]
        return Ran(
            job=one.job,
            user=came.gang.user,
            queue=came.gang.queue,
            stem="",
            shape=came.gang.shapes[0],
            priority=0,
            preemptible=False,
            seconds=self.held.pop(one.job),
            submitted_at=came.at,
            ended_at=one.at,
            served_seconds=one.service,
        )


def lives_of(present: Present) -> dict[JobId, RunTimeKnowledge]:
    """As `reconcile.start_forecast` has them."""
    lives = {gang.job: _life(gang, 0.0) for gang in present.waiting}
    for one in present.holders:
        lives[one.gang.job] = _life(one.gang, present.now - one.placed_at)
    return lives


def _life(gang: Waiting, ran_seconds: float) -> RunTimeKnowledge:
    kind = (gang.user, gang.stem, gang.shapes[0].gpu_millis)
    return RunTimeKnowledge(kind=kind, ran_seconds=gang.served_seconds + ran_seconds)


def asked_of(
    work: Workload, nodes: list[int], *, jobs: int, runs: int
) -> tuple[Town, list[Asked]]:
    """Forecasts for about so many of the jobs that have to wait, as they are submitted."""
    coming = [
        coming_of(work, row, [DEFAULT_QUEUE], nodes) for row in range(len(work.submits))
    ]
    town, found = Town(coming=coming), list[Asked]()
    made = [node_of(row, gpus) for row, gpus in enumerate(nodes)]
    play = Play(
        Present(now=0.0, nodes=made), {}, coming, hear=town.hear, lessons=Lessons()
    )
    warm, waited, every = int(WARM * len(coming)), 0, 1
    for row, came in enumerate(coming):
        if row < warm or came.at == coming[min(row + 1, len(coming) - 1)].at:
            continue  # of several that come at once the last is asked about
        play.run(until=came.at)
        if came.gang.job in town.began:
            continue
        waited += 1
        share = (row - warm) / (len(coming) - warm)
        every = (
            max(1, round(waited / max(1.0, share * jobs))) if share > 0.02 else every
        )
        if waited % every == 0 and len(found) < jobs * max(share, 0.02):
            found.append(ask(play, town, came.gang.job, runs))
    play.run()
    return town, found


def ask(play: Play, town: Town, job: JobId, runs: int) -> Asked:
    begun, present = time.process_time(), play.present()
    recent = town.runs[-MOST_ENDED:]
    past = sorted(recent, key=lambda ran: ran.submitted_at)
    drawn = outlook(
        present,
        lives_of(present),
        RuntimeHistory(recent),
        past,
        job,
        runs=runs,
        since=present.now,
        most_passes=MOST_PASSES,
        keep_on=lambda _: True,
    )
    waits = sorted(one.wait_seconds for one in drawn)
    return Asked(
        at=present.now, drawn=waits, job=job, seconds=time.process_time() - begun
    )


def measure(trace: str, *, jobs: int, runs: int, of: int) -> dict[str, float]:
    work = read_trace(TRACES / f"{trace}.csv.gz").workload
    first = min(FIRST[trace], len(work.submits) - of)
    work = replace(work.only(range(first, first + of)), queues=[0] * of)
    town, found = asked_of(work, sizes_of(CLUSTERS[trace]), jobs=jobs, runs=runs)
    return numbers_of(
        [
            Told(
                at=one.at,
                drawn=one.drawn,
                started=town.began[one.job],
                seconds=one.seconds,
            )
            for one in found
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=300, help="that are asked about")
    parser.add_argument("--runs", type=int, default=20, help="of the present, for each")
    parser.add_argument("--of", type=int, default=15_000, help="jobs of each trace")
    parser.add_argument("--trace", choices=list(CLUSTERS), action="append")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    traces = args.trace or list(CLUSTERS)
    ask_each = partial(measure, jobs=args.jobs, runs=args.runs, of=args.of)
    with ProcessPoolExecutor(2) as pool:
        found = dict(zip(traces, pool.map(ask_each, traces), strict=True))
    if args.json:
        print(json.dumps(found))
        return
    rows = [row for trace, one in found.items() for row in rows_of(trace, one)]
    jobs = ", ".join(f"{one['jobs']:.0f} of {trace}" for trace, one in found.items())
    notes = (
        f"{args.runs} runs a forecast, over {args.of:,} jobs of each; asked: {jobs}."
    )
    page = report("B9 by the live decision: when will it start", rows, notes)
    keep("sched-forecast-traces", page, args.write)


if __name__ == "__main__":
    main()
