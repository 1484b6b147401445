"""What a request and a commit cost in the store, against the same rows written by raw sqlite3.

Run: .venv/bin/python benchmarks/store.py [--rows N] [--rounds N] [--write FILE.md]

In turns, in the same run, on the same disk, WAL and synchronous=FULL: the store one call at a time
and in bursts of 500 at once, and sqlite3 with one transaction a row and one for 500 rows, the rows
being the very records that the store writes, encoded beforehand. A commit is one job and its event.
To reach: request and commit <= 1 ms of CPU each.
"""

import argparse
import asyncio
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from corral.domain.event_kind import EventKind
from corral.domain.ids import Sequence, UserName, job_id
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.requests import Submit
from corral.domain.resources import Resources
from corral.domain.world import Changes, Event
from corral.store.row_codec import EVENT, JOB, write_asked
from corral.store.sqlite import SqliteStore

BURST = 500
ANN = UserName("ann")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one row: seconds on the wall, and of CPU in this whole process."""

    wall: float
    cpu: float


def submit(number: int) -> Submit:
    return Submit(specs=(spec(number),), key=f"k{number}")


def spec(number: int) -> JobSpec:
    return JobSpec(
        name=f"train-{number}",
        run="python train.py",
        resources=Resources(gpu_millis=1000),
        env=(("HF_HOME", "/shared/hf"), ("NCCL_DEBUG", "WARN")),
    )


def changes(number: int) -> Changes:
    job = Job(
        id=job_id(number),
        spec=spec(number),
        owner=ANN,
        submitted=Sequence(number),
        submitted_at=1.0,
        state=JobState.QUEUED,
        since=1.0,
    )
    event = Event(
        at=1.0, kind=EventKind.SUBMITTED, text=f"{job.spec.name} waits", job=job.id
    )
    return Changes(jobs=(job,), events=(event,))


class Meter:
    """Costs by what was done, a round an entry."""

    def __init__(self) -> None:
        self.costs: dict[str, list[Cost]] = {}

    def add(self, what: str, rows: int, wall: float, cpu: float) -> None:
        self.costs.setdefault(what, []).append(Cost(wall / rows, cpu / rows))

    async def ask(
        self, what: str, rows: int, work: Callable[[], Awaitable[None]]
    ) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        await work()
        self.add(what, rows, time.perf_counter() - wall, time.process_time() - cpu)

    def do(self, what: str, rows: int, work: Callable[[], None]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        self.add(what, rows, time.perf_counter() - wall, time.process_time() - cpu)


async def through_the_store(path: Path, rows: int, meter: Meter) -> None:
    store = SqliteStore(path)
    term = (await store.lead()).term
    numbers = iter(range(1, 10**9))

    async def request(number: int) -> None:
        await store.add_request(submit(number), by=ANN, at=1.0)

    async def commit(number: int) -> None:
        await store.commit(term, changes(number))

    async def in_turn(one: Callable[[int], Awaitable[None]]) -> None:
        for _ in range(rows):
            await one(next(numbers))

    async def at_once(one: Callable[[int], Awaitable[None]]) -> None:
        for _ in range(0, rows, BURST):
            await asyncio.gather(*(one(next(numbers)) for _ in range(BURST)))

    whole = -(-rows // BURST) * BURST
    await meter.ask("request, store, one at a time", rows, lambda: in_turn(request))
    await meter.ask("request, store, 500 at once", whole, lambda: at_once(request))
    await meter.ask("commit, store, one at a time", rows, lambda: in_turn(commit))
    await meter.ask("commit, store, 500 at once", whole, lambda: at_once(commit))
    await store.close()


def through_sqlite3(path: Path, rows: int, meter: Meter) -> None:
    """The same records by hand: nothing is checked, encoded, numbered or read."""
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA journal_mode = WAL")
    raw.execute("PRAGMA synchronous = FULL")
    raw.execute(
        "CREATE TABLE wishes (sequence INTEGER PRIMARY KEY, key TEXT UNIQUE, record TEXT)"
    )
    raw.execute("CREATE TABLE jobs (id TEXT PRIMARY KEY, state TEXT, record TEXT)")
    raw.execute("CREATE TABLE events (number INTEGER PRIMARY KEY, record TEXT)")
    numbers = iter(range(1, 10**9))
    asked = write_asked(submit(1))[1]
    one = changes(1)
    job, event = JOB.write(one.jobs[0])[0], EVENT.write(one.events[0])[0]

    def request() -> None:
        raw.execute(
            "INSERT INTO wishes VALUES (NULL, ?, ?)", (f"k{next(numbers)}", asked)
        )

    def commit() -> None:
        raw.execute(
            "INSERT INTO jobs VALUES (?, 'QUEUED', ?)", (f"j{next(numbers)}", job)
        )
        raw.execute("INSERT INTO events VALUES (NULL, ?)", (event,))

    def written(each: Callable[[], None], group: int) -> Callable[[], None]:
        def work() -> None:
            for _ in range(0, rows, group):
                raw.execute("BEGIN IMMEDIATE")
                for _ in range(group):
                    each()
                raw.execute("COMMIT")

        return work

    whole = -(-rows // BURST) * BURST
    meter.do("request, sqlite3, one a transaction", rows, written(request, 1))
    meter.do("request, sqlite3, 500 a transaction", whole, written(request, BURST))
    meter.do("commit, sqlite3, one a transaction", rows, written(commit, 1))
    meter.do("commit, sqlite3, 500 a transaction", whole, written(commit, BURST))
    raw.close()


def report(meter: Meter, rows: int) -> str:
    lines = [
        f"Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. Machine: {os.cpu_count()} cores, "
        f"{platform.machine()}, Linux {platform.release()}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}.",
        "",
        f"{rows} rows a kind and round, {len(next(iter(meter.costs.values())))} rounds in turns; "
        "median of the rounds.",
        "",
        "| what | rows/s | CPU ms a row |",
        "| --- | --- | --- |",
    ]
    for what, costs in meter.costs.items():
        wall = statistics.median(cost.wall for cost in costs)
        cpu = statistics.median(cost.cpu for cost in costs)
        lines.append(f"| {what} | {1 / wall:,.0f} | {1000 * cpu:.3f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    meter = Meter()
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory() as directory:
            asyncio.run(
                through_the_store(Path(directory) / "store.db", asked.rows, meter)
            )
            through_sqlite3(Path(directory) / "raw.db", asked.rows, meter)
    text = report(meter, asked.rows)
    print(text)
    if asked.write is not None:
        asked.write.write_text("# Requests and commits of the store\n\n" + text)


if __name__ == "__main__":
    main()
