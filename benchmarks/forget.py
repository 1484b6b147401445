"""What it costs to keep 50,000 jobs that are over, and to forget what is too many.

Run: .venv/bin/python benchmarks/forget.py [--jobs N] [--write FILE.md]

A store is filled with jobs that are over, each with an attempt, an allocation that was let go, a
receipt and eight events, 4,000 more than are kept. Then: a head's load of its world; the look for
what may go while nothing is due, which comes every 5 s; and each commit that forgets 200 of them.
CPU seconds stand beside the clock's, for the machine may be busy with other work.
"""

import argparse
import asyncio
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from corral.domain.attempt import Allocation, Attempt, Seat, SeatState
from corral.domain.cause import Cause
from corral.domain.event_kind import EventKind
from corral.domain.ids import AttemptNumber, NodeId, Sequence, UserName, job_id
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.observed_state import Facts
from corral.domain.receipt import Receipt, ReceiptKind
from corral.domain.resources import Resources
from corral.domain.retention import Retention
from corral.domain.world import Changes, Event
from corral.reconcile.changeset import Draft, Now
from corral.reconcile.job_retention import MOST_AT_ONCE, forget
from corral.store.sqlite import SqliteStore

TOO_MANY = 4_000
EVENTS = 8
NOW = Now(wall=1e6, serving=0.0)
Taken = dict[str, list[tuple[float, float]]]


def over(numbers: range) -> Changes:
    """Jobs of these numbers, with all that a job leaves."""
    seat = Seat(node=NodeId("n1"), gpus=(0,), gpu_millis=1000)
    one = AttemptNumber(1)
    ids = [job_id(number) for number in numbers]
    return Changes(
        jobs=tuple(_job(number) for number in numbers),
        attempts=tuple(
            Attempt(job=id, number=one, seats=(seat,), master_port=29500, placed_at=1.0)
            for id in ids
        ),
        allocations=tuple(
            Allocation(job=id, attempt=one, seat=seat, state=SeatState.RELEASED) for id in ids
        ),
        receipts=tuple(
            Receipt(
                job=id, attempt=one, kind=ReceiptKind.FAILURE, cause=Cause.USER,
                culprit="rank 0 on n1",
                evidence="exit code 1", steps_lost=3, gpu_seconds_lost=4.0, seen_at=1.0,
            )
            for id in ids
        ),
        events=tuple(
            Event(at=1.0, kind=EventKind.SUBMITTED, text=f"{id} did something", job=id, attempt=one)
            for id in ids
            for _ in range(EVENTS)
        ),
    )  # fmt: skip


def _job(number: int) -> Job:
    spec = JobSpec(
        name=f"train-{number}",
        run="python train.py --epochs 10",
        resources=Resources(gpu_millis=1000),
        env=(("HF_HOME", "/shared/hf"),),
    )
    return Job(
        id=job_id(number),
        spec=spec,
        owner=UserName(f"user-{number % 40}"),
        submitted=Sequence(number),
        submitted_at=float(number),
        state=JobState.FAILED,
        since=float(number),
        attempt=AttemptNumber(1),
    )


@contextmanager
def timed(taken: Taken, part: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    seconds = (time.perf_counter() - wall, time.process_time() - cpu)
    taken.setdefault(part, []).append(seconds)


async def measure(path: Path, jobs: int, taken: Taken) -> None:
    store = SqliteStore(path)
    term = (await store.lead()).term
    for first in range(1, jobs + TOO_MANY + 1, 500):
        await store.commit(
            term, over(range(first, min(jobs + TOO_MANY + 1, first + 500)))
        )
    for _ in range(3):
        with timed(taken, "load of the world"):
            world = await store.lead()
    everything = Retention(jobs=2 * jobs)
    for _ in range(20):
        with timed(taken, "a look when nothing is due"):
            forget(Draft(world, Facts(), NOW), everything, frozenset())
    keep = Retention(jobs=jobs)
    while len(world.ended) > jobs:
        draft = Draft(world, Facts(), NOW)
        with timed(taken, f"choosing {MOST_AT_ONCE}"):
            forget(draft, keep, frozenset())
        changes = draft.changes()
        with timed(taken, f"the commit that forgets {MOST_AT_ONCE}"):
            await store.commit(world.term, changes)
        world.apply(changes)
    await store.close()


def report(taken: Taken, jobs: int, size_bytes: int) -> str:
    lines = [
        "# What is kept of jobs that are over, and forgetting them",
        "",
        f"Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. Machine: {os.cpu_count()} cores, "
        f"{platform.machine()}, Linux {platform.release()}, Python {platform.python_version()}; "
        f"load average {os.getloadavg()[0]:.1f}.",
        "",
        f"{jobs:,} jobs that are over are kept, {TOO_MANY:,} more are forgotten; {EVENTS} events "
        f"each, a store of {size_bytes / 1e6:.0f} MB.",
        "",
        "| part | times | median ms | worst ms | median ms of CPU |",
        "| --- | --- | --- | --- | --- |",
    ]
    for part, rows in taken.items():
        wall, cpu = zip(*rows, strict=True)
        lines.append(
            f"| {part} | {len(rows)} | {statistics.median(wall) * 1e3:.1f} | {max(wall) * 1e3:.1f} "
            f"| {statistics.median(cpu) * 1e3:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    taken: Taken = {}
    with tempfile.TemporaryDirectory(prefix="corral-forget-") as folder:
        path = Path(folder) / "corral.db"
        asyncio.run(measure(path, asked.jobs, taken))
        text = report(taken, asked.jobs, path.stat().st_size)
    print(text)
    if asked.write is not None:
        asked.write.write_text(text)


if __name__ == "__main__":
    main()
