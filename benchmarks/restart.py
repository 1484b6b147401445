"""How long a head needs from its start until it schedules again, with a full store.

Run: .venv/bin/python benchmarks/restart.py [--jobs N] [--nodes N] [--rounds N] [--write FILE.md]

A store is filled with unfinished jobs (one in five running, the others waiting, of 200 shapes) and
nodes of 8 GPUs, and copied as a kill -9 leaves it: its log not moved into the file. Each round is a
fresh process on such a copy: imports, opening (with the check of the whole file), lead (the world
is loaded), the first tick of the loop, and one tick after every node has been heard of.
To reach (issue 2): lead <= 0.7 s, scheduling again <= 2 s, for 10,000 jobs and 1,000 nodes.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from corral.domain.event_kind import EventKind
from corral.domain.resources import Gpu, Inventory

if TYPE_CHECKING:
    from corral.domain.attempt import Allocation, Attempt, Save
    from corral.domain.ids import JobId
    from corral.domain.job import Job

GPUS = 8
SHAPES = 200
PARTS = (
    "imports",
    "open",
    "lead",
    "first tick",
    "tick after all nodes were heard",
    "all",
)


def inventory() -> Inventory:
    gpus = tuple(
        Gpu(index=i, uuid=f"GPU-{i}", type="h100", memory_bytes=80 * 10**9)
        for i in range(GPUS)
    )
    ports = tuple(range(29500, 29516))
    return Inventory(gpus=gpus, cpu_millis=64_000, memory_bytes=10**12, ports=ports)


async def fill(path: Path, copy: Path, jobs: int, nodes: int) -> None:
    """A store as a cluster in full work leaves it."""
    from corral.domain.ids import NodeId
    from corral.domain.node import Liveness, Node
    from corral.domain.world import Changes
    from corral.store.sqlite import SqliteStore

    store = SqliteStore(path)
    term = (await store.lead()).term
    known = (
        Node(id=NodeId(f"n{i}"), inventory=inventory(), liveness=Liveness.ALIVE)
        for i in range(nodes)
    )
    await store.commit(term, Changes(nodes=tuple(known)))
    for first in range(0, jobs, 500):
        await store.commit(term, work(range(first, min(jobs, first + 500)), nodes))
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    await store.close()


def work(numbers: range, nodes: int) -> object:
    """Jobs of these numbers: every fifth runs on half a node."""
    from corral.domain.world import Changes, Event

    jobs, attempts, allocations, saves, events = [], [], [], [], []
    for number in numbers:
        runs = number % 5 == 0 and number // 5 < 2 * nodes
        job = _job(number, runs=runs)
        jobs.append(job)
        events.append(
            Event(
                at=float(number),
                kind=EventKind.SUBMITTED,
                text=f"{job.spec.name} waits",
                job=job.id,
            )
        )
        if not runs:
            continue
        attempt, allocation, kept = _run_of(job.id, number)
        attempts.append(attempt)
        allocations.append(allocation)
        saves += kept
    rows = (jobs, attempts, allocations, saves, events)
    names = ("jobs", "attempts", "allocations", "saves", "events")
    return Changes(**{name: tuple(row) for name, row in zip(names, rows, strict=True)})


class NoEngine:
    """Lends nothing, and proves nothing dead."""

    name = "none"
    cannot: Mapping[str, str] = {}

    def observe(self) -> Mapping[str, str]:
        return {}

    def gone(self) -> Set[str]:
        return frozenset()

    def says(self, key: object) -> str:
        return ""

    def apply(self, wanted: object) -> None:
        """Nobody listens."""


def _job(number: int, *, runs: bool) -> "Job":
    from corral.domain.ids import AttemptNumber, Sequence, UserName, job_id
    from corral.domain.job import CheckpointRule, Job, JobSpec
    from corral.domain.job_states import JobState
    from corral.domain.resources import Resources

    shape = number % SHAPES
    gpus = 4 if runs else 1 + shape % 8
    spec = JobSpec(
        name=f"train-{number}",
        run="python train.py --epochs 10",
        nodes=1 if runs else 1 + shape // 8,
        resources=Resources(gpu_millis=gpus * 1000, gpu_type="h100", cpu_millis=4000),
        env=(("HF_HOME", "/shared/hf"), ("NCCL_DEBUG", "WARN")),
        checkpoint=CheckpointRule(path="./ckpt"),
    )
    return Job(
        id=job_id(number + 1),
        spec=spec,
        owner=UserName(f"user-{number % 40}"),
        submitted=Sequence(number + 1),
        submitted_at=float(number),
        state=JobState.RUNNING if runs else JobState.QUEUED,
        since=float(number),
        attempt=AttemptNumber(int(runs)),
    )


def _run_of(id: "JobId", number: int) -> "tuple[Attempt, Allocation, list[Save]]":
    """The first attempt of a job that runs on half a node, and three saves of it."""
    from corral.domain.attempt import Allocation, Attempt, Save, Seat
    from corral.domain.ids import AttemptNumber, NodeId

    of_node, half = divmod(number // 5, 2)
    held = tuple(range(4 * half, 4 * half + 4))
    node = NodeId(f"n{of_node}")
    seat = Seat(node=node, gpus=held, gpu_millis=4000, cpu_millis=4000)
    key = {"job": id, "attempt": AttemptNumber(1)}
    attempt = Attempt(
        job=id,
        number=AttemptNumber(1),
        seats=(seat,),
        master_port=29500,
        placed_at=1.0,
    )
    allocation = Allocation(**key, seat=seat, port=29500 + half)
    kept = {"path": "/s", "manifest_sha256": "ab" * 32, "size_bytes": 1, "at": 1.0}
    saves = [
        Save(**key, **kept, step=s, seconds=1.0, stall_seconds=0.1)
        for s in (10, 20, 30)
    ]
    return attempt, allocation, saves


@contextmanager
def timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[part] = time.perf_counter() - began


async def measure(path: Path) -> dict[str, float]:
    """One restart, part by part."""
    seconds: dict[str, float] = {}
    with timed(seconds, "all"):
        with timed(seconds, "imports"):
            from corral.boot.clock import SystemClock
            from corral.control.control import Control
            from corral.domain.ids import BootId
            from corral.domain.observed_state import NodeFacts
            from corral.store.sqlite import SqliteStore
        with timed(seconds, "open"):
            store = SqliteStore(path)
        control = Control(store=store, engine=NoEngine(), clock=SystemClock())
        with timed(seconds, "lead"):
            await control.start()
        with timed(seconds, "first tick"):
            await control.tick()
        with timed(seconds, "tick after all nodes were heard"):
            at = control.serving_seconds()
            for id, node in control.world.nodes.items():
                facts = NodeFacts(
                    node=id,
                    boot=BootId("b"),
                    heard_at=at,
                    inventory=node.inventory,
                    seen=(),
                )
                control.hear(facts)
            await control.tick()
    seconds["jobs"], seconds["nodes"] = (
        len(control.world.jobs),
        len(control.world.nodes),
    )
    seconds["wait"] = len(control.reasons)
    await store.close()
    return seconds


def one_round(killed: Path, scratch: Path) -> dict[str, float]:
    path = scratch / "corral.db"
    for suffix in ("", "-wal"):
        shutil.copy(f"{killed}{suffix}", f"{path}{suffix}")
    Path(f"{path}-shm").unlink(missing_ok=True)
    command = [sys.executable, __file__, "--measure", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def report(rounds: list[dict[str, float]], size_bytes: int) -> str:
    first = rounds[0]
    lines = [
        f"Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. Machine: "
        f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}, "
        f"Python {platform.python_version()}.",
        "",
        f"{first['jobs']:.0f} unfinished jobs, {first['nodes']:.0f} nodes, store of "
        f"{size_bytes / 1e6:.0f} MB with its log left by a kill; {len(rounds)} rounds, each a "
        f"fresh process. {first['wait']:.0f} jobs had a reason to wait after the pass.",
        "",
        "| part | median s | worst s |",
        "| --- | --- | --- |",
    ]
    for part in PARTS:
        taken = [one[part] for one in rounds]
        lines.append(f"| {part} | {statistics.median(taken):.3f} | {max(taken):.3f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure is not None:
        print(json.dumps(asyncio.run(measure(asked.measure))))
        return
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        killed = scratch / "killed.db"
        asyncio.run(fill(scratch / "first.db", killed, asked.jobs, asked.nodes))
        size = killed.stat().st_size + Path(f"{killed}-wal").stat().st_size
        text = report([one_round(killed, scratch) for _ in range(asked.rounds)], size)
    print(text)
    if asked.write is not None:
        asked.write.write_text("# Head restart\n\n" + text)


if __name__ == "__main__":
    main()
