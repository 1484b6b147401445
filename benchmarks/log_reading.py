"""Delay of the head's loop while it finds out what ranks failed of, in the loop and beside it.

Run: .venv/bin/python benchmarks/log_reading.py [--nodes N] [--write]

A gang of 1 rank a GPU on N nodes of 16 GPUs fails at once; each rank has printed 4 KB that are
chosen to be slow to read. Measured: the longest time for which a task of the same loop that sleeps
for 5 ms was not run, and when the job was concluded.
"""

import argparse
import asyncio
import time
from dataclasses import dataclass

from embedded import keep, report
from restart import NoEngine

from corral.boot.clock import SystemClock
from corral.boot.log_reader_process import ReaderProcess
from corral.control import Control
from corral.domain.attempt import Exit
from corral.domain.ids import BootId, JobId, NodeId, UserName
from corral.domain.job import JobSpec, Per
from corral.domain.job_states import FINAL
from corral.domain.observed_state import NodeFacts, Phase, Seen
from corral.domain.resources import Gpu, Inventory, Resources
from corral.store.memory_store import MemoryStore

GPUS = 16
TAIL_BYTES = 4096
SLEEP_SECONDS = 0.005
BEAT_SECONDS = 1.0
MOST_DELAY_SECONDS = 0.1
TAILS = {
    "ordinary tracebacks": "Traceback (most recent call last):\n"
    '  File "train.py", line 1, in step\nRuntimeError: CUDA out of memory\n',
    "half-begun matches": "*** [",
    "names of 400 ranks": "\n[rank%d]:Error: x",
}


class Engine(NoEngine):
    """Takes jobs."""

    could_bring = ()
    restarts_in_place = True
    shown_by = ""
    trouble = ""


@dataclass
class Delay:
    """Longest time between two runs of a task, but for its sleep."""

    seconds: float = 0.0

    async def watch(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(SLEEP_SECONDS)
            now = time.perf_counter()
            self.seconds = max(self.seconds, now - last - SLEEP_SECONDS)
            last = now


def tail(kind: str, rank: int) -> str:
    text = TAILS[kind]
    lines = (
        text % number if "%d" in text else text
        for number in range(TAIL_BYTES // len(text))
    )
    return f"{rank} {''.join(lines)}"[:TAIL_BYTES]


def inventory() -> Inventory:
    gpus = tuple(
        Gpu(index=i, uuid=f"GPU-{i}", type="h100", memory_bytes=80 * 10**9)
        for i in range(GPUS)
    )
    ports = tuple(range(29500, 29516))
    return Inventory(gpus=gpus, cpu_millis=64_000, memory_bytes=10**12, ports=ports)


def words(
    control: Control, nodes: list[NodeId], job: JobId | None, kind: str
) -> list[NodeFacts]:
    """Reports of all nodes; with a kind, that the job's ranks have failed and printed this."""
    found, has = [], inventory()
    order = nodes if job is None else control.world.attempts[job].nodes
    for number, id in enumerate(order):
        seen: tuple[Seen, ...] = ()
        if job is not None and kind:
            ranks = range(number * GPUS, (number + 1) * GPUS)
            exits = tuple((rank, Exit(code=1, at=1.0 + rank * 1e-6)) for rank in ranks)
            tails = tuple((rank, tail(kind, rank)) for rank in ranks)
            seen = (Seen(key=(job, 1), phase=Phase.ENDED, exits=exits, tails=tails),)  # type: ignore[arg-type]
        elif job is not None:
            seen = (Seen(key=(job, 1), phase=Phase.UP),)  # type: ignore[arg-type]
        heard_at = control.serving_seconds()
        word = NodeFacts(
            node=id, boot=BootId("b"), heard_at=heard_at, inventory=has, seen=seen
        )
        found.append(word)
    return found


def beat(control: Control, nodes: list[NodeId], job: JobId | None) -> None:
    for word in words(control, nodes, job, ""):
        control.hear(word)


async def measure(
    kind: str, nodes: int, reader: ReaderProcess | None
) -> tuple[float, float]:
    """Return the longest delay of the loop, and the seconds until the job was concluded."""
    ids = [NodeId(f"n{number}") for number in range(nodes)]
    control = Control(
        store=MemoryStore(), engine=Engine(), clock=SystemClock(), reader=reader
    )  # type: ignore[arg-type]
    await control.start()
    beat(control, ids, None)
    running = asyncio.gather(control.run(), control.diagnoses.run())
    while len(control.world.nodes) < nodes:
        await asyncio.sleep(0.01)
    whole = Resources(gpu_millis=GPUS * 1000)
    spec = JobSpec(name="gang", run="true", nodes=nodes, resources=whole, per=Per.GPU)
    (job,) = await control.submit([spec], key="k", by=UserName("eve"))
    while job.id not in control.world.attempts:
        await asyncio.sleep(0.01)
    beat(control, ids, job.id)
    await asyncio.sleep(1.0)
    delay = Delay()
    watching = asyncio.create_task(delay.watch())
    await asyncio.sleep(0.05)
    reports = words(control, ids, job.id, kind)
    await asyncio.sleep(0.05)
    delay.seconds, began = 0.0, time.perf_counter()
    for word in reports:
        control.hear(word)
    while (
        job.id in control.world.jobs and control.world.jobs[job.id].state not in FINAL
    ):
        await asyncio.sleep(0.02)
    took = time.perf_counter() - began
    await asyncio.sleep(0.05)
    for task in (watching, running):
        task.cancel()
    await asyncio.gather(watching, running, return_exceptions=True)
    return delay.seconds, took


async def rows(nodes: int) -> list[tuple[str, str, str]]:
    found = []
    process = ReaderProcess()
    for kind in TAILS:
        for where, reader in (("in the loop", None), ("beside it", process)):
            delay, took = await measure(kind, nodes, reader)
            met = "met" if delay <= MOST_DELAY_SECONDS else "MISSED"
            bound = f"<= {MOST_DELAY_SECONDS * 1e3:.0f} ms: {met}" if reader else ""
            figure = f"{delay * 1e3:.0f} ms; concluded after {took:.1f} s"
            found.append((f"{kind}, {nodes * GPUS:,} ranks, {where}", figure, bound))
            print(*found[-1], flush=True)
    await process.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    notes = (
        "The longest delay of the head's loop from the moment at which all nodes have reported the "
        "ends of their ranks. A store in memory; the machine was shared with other work. Until "
        "now, last lines were read in the loop (rows `in the loop`)."
    )
    found = asyncio.run(rows(asked.nodes))
    keep(
        "log_reading",
        report("Reading what ranks printed last", found, notes),
        asked.write,
    )


if __name__ == "__main__":
    main()
