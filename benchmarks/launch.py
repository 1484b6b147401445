"""How long the agent's supervisor takes from a start request to a running rank, and what it costs.

    python benchmarks/launch.py [--launches 100] [--pause 0.1] [--burst 500] [--result FILE]

One node in a temporary folder. Each rank prints the clock as its first act, so the figure counts
the plan, the launcher's fork, the shim, its containment, three fsyncs of the journal and the exec
of the shell. `--pause` seconds pass between two launches: without them the kernel is still warm
from the last one, as no node is whose jobs start minutes apart.
"""

import argparse
import asyncio
import json
import os
import platform
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from corral.agent.supervisor.kill_node import kill_node
from corral.agent.supervisor.supervisor import Supervisor
from corral.domain.attempt import Seat
from corral.domain.desired_state import Launch
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job import Per
from corral.domain.observed_state import Phase
from corral.wire.node import NodeSettings, encode_settings


def launch_of(name: str, run: str) -> Launch:
    return Launch(
        key=(JobId(name), AttemptNumber(1)), job_name=name, seat=Seat(node=NodeId("bench")),
        node_rank=0, nodes=("127.0.0.1",), first_rank=0, ranks=1, world_size=1,
        master_address="127.0.0.1", master_port=29500, run=run, setup=None, per=Per.GPU, env=(),
        secrets=(), workdir=None, owner="", array_index=None, checkpoint=None, resume=(),
        grace_seconds=1.0, node_mtbf_seconds=1e6,
    )  # fmt: skip


class Bench:
    def __init__(self, node_dir: Path) -> None:
        self.dir = node_dir
        settings = NodeSettings(
            node=NodeId("bench"), head_file="", pretend_gpus=8, isolation="none"
        )
        file = node_dir / "node.json"
        file.write_bytes(encode_settings(settings))
        file.chmod(0o600)
        self.changed = asyncio.Event()
        self.supervisor = Supervisor(
            node_dir, settings=settings, on_change=self.changed.set
        )

    async def launch(self, name: str, run: str) -> Path:
        folder = self.dir / "attempts" / f"{name}.1"
        (folder / "work").mkdir(parents=True)
        await self.supervisor.launch(launch_of(name, run), folder / "work", {})
        return folder

    async def all_ended(self, count: int) -> None:
        while sum(one.phase == Phase.ENDED for one in self.supervisor.seen()) < count:
            self.changed.clear()
            await self.changed.wait()

    async def latencies(self, launches: int, pause: float) -> list[float]:
        """Seconds from the request to the first act of the rank, one launch after another."""
        seconds = []
        for number in range(launches):
            await asyncio.sleep(pause)
            asked = time.time()
            folder = await self.launch(f"one{number}", "echo $EPOCHREALTIME")
            await self.all_ended(number + 1)
            seconds.append(float((folder / "logs/rank-0.log").read_text()) - asked)
        return seconds

    async def burst(self, launches: int, before: int) -> tuple[float, float]:
        """(attempts a second from request to end, CPU seconds an attempt), all asked at once."""
        launcher = self.supervisor.launcher_pid
        used, began = cpu_seconds(launcher), time.perf_counter()
        await asyncio.gather(
            *(self.launch(f"all{number}", "true") for number in range(launches))
        )
        await self.all_ended(before + launches)
        wall = time.perf_counter() - began
        return launches / wall, (cpu_seconds(launcher) - used) / launches


def cpu_seconds(launcher: int | None) -> float:
    """Of this process, the launcher, and the shims and ranks that were waited for."""
    fields = Path(f"/proc/{launcher}/stat").read_text().rpartition(")")[2].split()
    own = resource.getrusage(resource.RUSAGE_SELF)
    ticks = sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK") + own.ru_utime + own.ru_stime


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(
    node_dir: Path, launches: int, pause: float, burst: int
) -> dict[str, float | str]:
    bench = Bench(node_dir)
    await bench.supervisor.start()
    try:
        seconds = await bench.latencies(launches, pause)
        rate, cpu = await bench.burst(burst, launches)
    finally:
        await bench.supervisor.close()
    return {
        "containment": bench.supervisor.containment.kind,
        "launches": launches,
        "pause_seconds": pause,
        "p50_ms": 1000 * statistics.median(seconds),
        "p99_ms": 1000 * quantile(seconds, 0.99),
        "burst": burst,
        "attempts_per_second": rate,
        "cpu_ms_per_attempt": 1000 * cpu,
        "agent_peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def page(found: dict[str, float | str]) -> str:
    load = os.getloadavg()[0]
    lines = [
        "# Launching: start request to running rank",
        "",
        f"Machine: {os.cpu_count()} cores, Linux {platform.release()}, Python "
        f"{platform.python_version()}; other work on it at the same time (load {load:.1f}). "
        f"Date: {datetime.now(UTC).date()}. Command: `python benchmarks/launch.py`.",
        "",
        "| what | measured |",
        "| --- | --- |",
    ]
    for name, value in found.items():
        shown = f"{value:.1f}" if isinstance(value, float) else f"{value}"
        lines.append(f"| {name.replace('_', ' ')} | {shown} |")
    lines += [
        "",
        "CPU: user and system time of supervisor, launcher, shim and rank together.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0.1)
    parser.add_argument("--burst", type=int, default=500)
    parser.add_argument("--result", type=Path)
    words = parser.parse_args()
    node_dir = Path(tempfile.mkdtemp(prefix="corral-bench-"))
    try:
        found = asyncio.run(measure(node_dir, words.launches, words.pause, words.burst))
    finally:
        kill_node(node_dir)
        shutil.rmtree(node_dir)
    print(json.dumps(found))
    if words.result:
        words.result.write_text(page(found))


if __name__ == "__main__":
    main()
