"""What a forecast costs the head: how long its loop stands still, and how long the answer takes.

Run: .venv/bin/python benchmarks/sched/forecast_cost.py [--write]

64 nodes of 8 GPUs, full of jobs of one GPU; so many more wait. The control and the process beside
it are real, the store is in memory, and nobody beats: the loop has nothing else to do, so that a
gap between two turns of it is what the forecast has cost. A turn is asked for every millisecond.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from embedded import keep, quantile, report

from corral.boot.clock import SystemClock
from corral.boot.forecast_process import ForetellerProcess
from corral.control import Control, Forecasts
from corral.domain.desired_state import DesiredState
from corral.domain.ids import NodeId, UserName
from corral.domain.job_states import JobState
from corral.domain.observed_state import AttemptKey, NodeFacts
from corral.store.memory_store import MemoryStore
from tests.worlds import gang, node

NODES, GPUS, ASKED = 64, 8, 8
WAITING = (10, 100, 1000, 4000)
ANN = UserName("ann")


@dataclass
class Nothing:
    """An engine that runs nothing."""

    name: str = "nothing"
    cannot: Mapping[str, str] = field(default_factory=dict)

    def observe(self) -> Mapping[NodeId, str]:
        return {}

    def gone(self) -> Set[NodeId]:
        return frozenset()

    def says(self, key: AttemptKey) -> str:
        return ""

    def apply(self, wanted: DesiredState) -> None:
        pass


async def full(waiting: int) -> Control:
    control = Control(store=MemoryStore(), engine=Nothing(), clock=SystemClock())
    await control.start()
    for number in range(NODES):
        one = node(f"n{number}", gpus=GPUS)
        now = control.serving_seconds()
        control.hear(
            NodeFacts(node=one.id, boot=one.boot, heard_at=now, inventory=one.inventory)
        )
    await control.tick()
    specs = [
        gang(f"job-{n}", max_duration_seconds=3600.0 + 60 * (n % 100))
        for n in range(NODES * GPUS + waiting)
    ]
    asking = asyncio.create_task(control.submit(specs, key="all", by=ANN))
    while not asking.done():
        await asyncio.sleep(0)
        await control.tick()
    return control


async def gaps(until: "asyncio.Task[object]") -> list[float]:
    """Milliseconds between turns of the loop beyond the one that was asked for."""
    found, last = [], time.perf_counter()
    while not until.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        found.append(1000 * (now - last) - 1.0)
        last = now
    return found


async def measure(waiting: int) -> list[tuple[str, str, str]]:
    control = await full(waiting)
    process = ForetellerProcess()
    forecasts = Forecasts(control, process)
    last = [job for job in control.world.jobs.values() if job.state == JobState.QUEUED][
        -ASKED:
    ]
    assert await forecasts.of(last[0]) is not None  # the process is there
    idle = await gaps(asyncio.create_task(asyncio.sleep(3.0)))
    took: list[float] = []
    runs: list[int] = []

    async def ask() -> None:
        for job in last[1:]:
            began = time.perf_counter()
            found = await forecasts.of(job)
            took.append(time.perf_counter() - began)
            runs.append(found.runs if found is not None else 0)

    busy = await gaps(asyncio.create_task(ask()))
    await process.close()
    name = f"{waiting} wait"
    return [
        (
            f"{name}: an answer",
            f"{quantile(took, 0.5):.2f} s, {quantile(runs, 0.5):.0f} runs",
            "",
        ),
        (
            f"{name}: the loop stands still, 99 of 100",
            f"{quantile(busy, 0.99):.1f} ms",
            "",
        ),
        (f"{name}: at most", f"{max(busy):.1f} ms", "50 ms"),
        (f"{name}: at most, when nothing is asked", f"{max(idle):.1f} ms", ""),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    rows = [row for waiting in WAITING for row in asyncio.run(measure(waiting))]
    keep("sched-forecast-cost", report("What a forecast costs the head", rows), write)


if __name__ == "__main__":
    main()
