"""CPU time of one short job, by process: head, agents, and what launchers fork (shims and ranks).

Run: .venv/bin/python benchmarks/job_cpu.py [--jobs 300] [--write]

`true` jobs of one GPU run on 4 nodes of 8 pretend GPUs, as in throughput.py. CPU time is read from
/proc before and after them, so that the load of other programs changes it little.
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from embedded import cluster, keep, report

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
WARM_JOBS: Final = 50
PARTS: Final = {
    "corral.boot.head": "head",
    "corral.agent.launcher": "shims and ranks",
    "corral.agent.telemetry": "sensors",
    "corral.agent ": "agents",
}


def cpu_seconds(root: str) -> dict[int, tuple[str, float]]:
    """Return (part, seconds with those of its ended children) of the cluster's processes."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        part = next((part for module, part in PARTS.items() if module in words), None)
        if part is not None and root in words:
            seconds = sum(int(ticks) for ticks in fields[11:15]) / TICKS_PER_SECOND
            found[int(folder.name)] = (part, seconds)
    return found


def run_jobs(client: Any, jobs: int, name: str) -> None:
    specs = [
        {"name": f"{name}-{index}", "run": "true", "resources": {"gpu": 1}}
        for index in range(jobs)
    ]
    open_jobs = {job.id for job in client.submit(specs)}
    for event in client.events(follow=True):
        if event.text.endswith("is DONE"):
            open_jobs.discard(event.job)
        if not open_jobs:
            return


def milliseconds_a_job(
    before: Mapping[int, tuple[str, float]],
    after: Mapping[int, tuple[str, float]],
    jobs: int,
) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for pid, (part, seconds) in after.items():
        sums[part] += 1000.0 * (seconds - before.get(pid, (part, 0.0))[1]) / jobs
    return dict(sums)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    with cluster("--nodes", "4", "--gpus", "8", "--pretend") as (root, client):
        run_jobs(client, WARM_JOBS, "warm")
        before = cpu_seconds(str(root))
        run_jobs(client, asked.jobs, "job")
        used = milliseconds_a_job(before, cpu_seconds(str(root)), asked.jobs)
    rows = [(part, f"{value:.1f} ms", "") for part, value in sorted(used.items())]
    total = sum(used.values())
    rows.append(("all", f"{total:.1f} ms", "8 ms, for 250 jobs/s on 2 cores"))
    keep("job_cpu", report(f"CPU time of a job, {asked.jobs} jobs", rows), asked.write)


if __name__ == "__main__":
    main()
