"""How long a report over 100,000 jobs holds up the head's loop, which beats and placement wait for.

    python benchmarks/report_pauses.py [--jobs 100000] [--running 5000]

A store of SQLite holds accounts of so many jobs that are over, a world in memory so many that run
on two nodes each. While each report is made, a task beside it wants to go on each millisecond: its
longest pause is what a beat may have waited, its most CPU between two is the loop's own work.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from reports import fill

from corral.boot.gc_tuning import search_rarely
from corral.control import Control
from corral.control.gpu_usage import GpuUsage
from corral.control.reports import report_of
from corral.domain.attempt import Allocation, Attempt, Seat
from corral.domain.ids import AttemptNumber, ClusterId, NodeId, UserName, job_id
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.ledger import day_of
from corral.domain.resources import Resources
from corral.domain.world import Changes, World
from corral.reconcile import Now
from corral.store.sqlite import SqliteStore
from corral.wire.reports import MOST_ROWS, encoded
from tests.worlds import node

ASKS = (("usage", "job"), ("goodput", "user"), ("cost", "queue"))
NODES, TIMES = 1000, 3


@dataclass
class Held:
    """As much of a Control as a report asks for."""

    store: SqliteStore
    world: World
    ledger: GpuUsage = field(default_factory=GpuUsage)

    def now(self) -> Now:
        return Now(serving=0.0, wall=time.time())


@dataclass
class Pauses:
    longest: float = 0.0
    most_cpu: float = 0.0

    async def watch(self) -> None:
        while True:
            at, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.perf_counter() - at - 0.001)
            self.most_cpu = max(self.most_cpu, time.thread_time() - cpu)


def running(number: int, dice: random.Random) -> tuple[Job, Attempt, list[Allocation]]:
    spec = JobSpec(
        name=f"run-{number}", run="true", resources=Resources(gpu_millis=2000), nodes=2
    )
    began = time.time() - dice.uniform(0, 86400)
    job = Job(
        id=job_id(number), spec=spec, owner=UserName(f"u{number % 50}"), submitted=number,
        submitted_at=began, state=JobState.RUNNING, since=began, attempt=AttemptNumber(1),
    )  # fmt: skip
    seats = tuple(
        Seat(node=NodeId(f"n{at}"), gpus=(0, 1), gpu_millis=2000)
        for at in dice.sample(range(NODES), 2)
    )
    attempt = Attempt(
        job=job.id, number=AttemptNumber(1), seats=seats, master_port=1, placed_at=began,
        running_at=began + 5,
    )  # fmt: skip
    held = [
        Allocation(
            job=job.id, attempt=attempt.number, seat=seat, since=began, placed_at=began
        )
        for seat in seats
    ]
    return job, attempt, held


def world_of(jobs: int) -> World:
    dice = random.Random(6)
    world = World(cluster=ClusterId("c"), term=1)
    rows = [running(number, dice) for number in range(1, jobs + 1)]
    changes = Changes(
        nodes=tuple(node(f"n{at}") for at in range(NODES)),
        jobs=tuple(job for job, _, _ in rows),
        attempts=tuple(attempt for _, attempt, _ in rows),
        allocations=tuple(one for _, _, held in rows for one in held),
    )
    world.apply(changes)
    return world


async def watched(ask: Callable[[], Awaitable[Any]]) -> tuple[float, Pauses]:
    pauses = Pauses()
    watch = asyncio.create_task(pauses.watch())
    await asyncio.sleep(0.05)
    began = time.perf_counter()
    await ask()
    took = time.perf_counter() - began
    await asyncio.sleep(0.005)
    watch.cancel()
    return took, pauses


async def answer(control: Control, kind: str, by: str) -> None:
    today = day_of(time.time())
    found = await report_of(
        control, kind, by, first=today - 6, last=today, limit=MOST_ROWS
    )
    await asyncio.to_thread(encoded, found, first=today - 6, last=today)


async def run(jobs: int, up: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corral.db"
        await fill(path, jobs)
        store = SqliteStore(path)
        control = cast(Control, Held(store, world_of(up)))
        search_rarely()
        took, idle = await watched(lambda: asyncio.sleep(2.0))
        print(f"nothing: longest pause {1000 * idle.longest:.0f} ms")
        for kind, by in ASKS:
            found = [
                await watched(partial(answer, control, kind, by)) for _ in range(TIMES)
            ]
            took = min(one for one, _ in found)
            longest = sorted(one.longest for _, one in found)
            cpu = max(one.most_cpu for _, one in found)
            print(
                f"{kind} by {by}: {took:.2f} s; longest pause "
                f"{', '.join(f'{1000 * one:.0f}' for one in longest)} ms; "
                f"most of the loop's own work at once {1000 * cpu:.1f} ms"
            )
        await store.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--jobs", type=int, default=100_000)
    options.add_argument("--running", type=int, default=5_000)
    asked = options.parse_args()
    asyncio.run(run(asked.jobs, asked.running))


if __name__ == "__main__":
    main()
