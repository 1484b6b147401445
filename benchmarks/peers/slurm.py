"""What Slurm does on this machine: the figures that Corral's are set against, in the same run.

`python -m benchmarks.peers.slurm --json` measures all of them and prints one JSON object.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import math
import os
import platform
import random
import secrets
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from benchmarks.peers.slurm_cluster import (
    Settings,
    SlurmCluster,
    SlurmMissing,
    installed,
    poll,
    slurm_cluster,
    why_missing,
)

__all__ = [
    "DEFAULT",
    "FAULTS",
    "STAMP",
    "TUNED",
    "cancel_to_zero",
    "dead_slurmd_seen",
    "installed",
    "poll",
    "quantile",
    "slurm_cluster",
    "submit_to_running",
    "throughput",
    "why_missing",
]

DEFAULT: Final[Settings] = {}
"""Slurm's own defaults: a batch job is scheduled up to 3 s late, the backfill runs every 30 s."""

TUNED: Final[Settings] = {
    "SchedulerParameters": (
        "batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1,"
        "default_queue_depth=1000,bf_max_job_test=1000,bf_max_job_array_resv=100,bf_continue"
    ),
    "EpilogMsgTime": "0",
    "CompleteWait": "0",
    "SlurmctldDebug": "error",
    "SlurmdDebug": "error",
}
"""The best of five sets tried here, once each: benchmarks/results/slurm-2026-11-21.md."""

KILL_WAIT_SECONDS: Final = 2
FAULTS: Final[Settings] = {
    **TUNED,
    "SlurmdTimeout": "15",
    "KillWait": str(KILL_WAIT_SECONDS),
}

STAMP: Final = '#!/bin/bash\necho "$EPOCHREALTIME" > "$1"\n'
"""The rank: its first instruction is the wall time. Use the same for Corral."""

TRUE: Final = "#!/bin/sh\nexec true\n"

STUBBORN: Final = """#!/bin/bash
trap '' TERM
(setsid sleep 3600 &)
(setsid bash -c '(sleep 3600 &); exec sleep 3600' &)
touch "$1"
while :; do sleep 3600; done
"""
STUBBORN_PROCESSES: Final = 5  # the script, its sleep, and three that left its session

JOB_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How long one job took to its first instruction, in seconds."""

    from_call: float  # the sbatch process was started
    from_return: float  # sbatch had answered: the job was received before this


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """500 jobs, say, until the last one is gone from the queue."""

    jobs: int
    seconds: float
    submit_seconds: float

    @property
    def jobs_per_second(self) -> float:
        return self.jobs / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadSeen:
    """Seconds since a slurmd was killed."""

    unresponsive_seconds: float  # sinfo shows idle*: no new jobs go there
    down_seconds: float  # sinfo shows down*: its jobs are requeued


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSeconds:
    """From scancel to no process of the job, KillWait included."""

    total: float
    kill_wait: float = KILL_WAIT_SECONDS

    @property
    def after_grace(self) -> float:
        return self.total - self.kill_wait


def submit_to_running(
    slurm: SlurmCluster, *, count: int = 100, seed: int = 1
) -> list[Start]:
    """One-GPU jobs, one after another, each to an idle cluster.

    Slurm schedules about once a second, so a pause of up to a second (seeded) lies between jobs:
    without it every job would wait for the whole of that second.
    """
    script = _script(slurm, "stamp", STAMP)
    pauses = random.Random(seed)
    starts: list[Start] = []
    for _ in range(count):
        time.sleep(pauses.random())
        out = slurm.folder / f"stamp-{secrets.token_hex(4)}"
        called = time.time()
        slurm.sbatch(script, str(out))
        returned = time.time()
        began = _stamp(out)
        starts.append(Start(from_call=began - called, from_return=began - returned))
        _wait_until_idle(slurm)
    return starts


def throughput(
    slurm: SlurmCluster, *, jobs: int = 500, how: Literal["array", "sbatch"] = "array"
) -> Rate:
    """One-GPU `true` jobs until all are gone: one array, or `sbatch` once a job, two at a time."""
    script = _script(slurm, "true", TRUE)
    began = time.monotonic()
    if how == "array":
        slurm.sbatch(script, options=(f"--array=0-{jobs - 1}",))
    else:
        with ThreadPoolExecutor(2) as callers:
            list(callers.map(lambda _: slurm.sbatch(script), range(jobs)))
    submitted = time.monotonic() - began
    while slurm.unfinished():
        time.sleep(0.2)  # asking more often would cost Slurm some of the two cores
    return Rate(jobs=jobs, seconds=time.monotonic() - began, submit_seconds=submitted)


def dead_slurmd_seen(slurm: SlurmCluster) -> DeadSeen:
    """Kill an idle node's slurmd (kill -9). Ask for `FAULTS`: by default it takes minutes."""
    node = slurm.nodes[-1]
    slurm.slurmd[node].kill()
    slurm.slurmd[node].wait()
    began = time.monotonic()
    poll(
        lambda: slurm.node_state(node).endswith("*"),
        within_seconds=JOB_SECONDS,
        what="unresponsive node",
    )
    unresponsive = time.monotonic() - began
    poll(
        lambda: slurm.node_state(node).startswith("down"),
        within_seconds=JOB_SECONDS,
        what="node that is down",
    )
    return DeadSeen(
        unresponsive_seconds=unresponsive, down_seconds=time.monotonic() - began
    )


def cancel_to_zero(slurm: SlurmCluster) -> CancelSeconds:
    """A job that ignores TERM, double-forks and leaves its session. Ask for `FAULTS`."""
    mark = f"CORRAL_PEER_MARK={secrets.token_hex(8)}"
    ready = slurm.folder / "stubborn-ready"
    script = _script(slurm, "stubborn", STUBBORN)
    job = slurm.sbatch(script, str(ready), options=(f"--export=ALL,{mark}",))
    poll(ready.exists, within_seconds=JOB_SECONDS, what="stubborn job")
    poll(
        lambda: _count_with(mark) == STUBBORN_PROCESSES,
        within_seconds=JOB_SECONDS,
        what="all processes of a stubborn job",
    )
    began = time.monotonic()
    slurm.command("scancel", str(job))
    poll(
        lambda: _count_with(mark) == 0,
        within_seconds=JOB_SECONDS,
        what="end of a stubborn job",
    )
    return CancelSeconds(total=time.monotonic() - began)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of `values` do not exceed."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]


def measure_all(*, count: int, default_count: int, jobs: int) -> dict[str, Any]:
    """Everything, with a fresh cluster for each set of settings."""
    report: dict[str, Any] = {
        "peer": "slurm",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.platform()}",
    }
    for name, settings, starts in (
        ("default", DEFAULT, default_count),
        ("tuned", TUNED, count),
    ):
        with slurm_cluster(settings=settings) as slurm:
            report["version"] = slurm.command("sinfo", "--version")
            report[name] = {
                "settings": dict(settings),
                "submit_to_running": _summary(submit_to_running(slurm, count=starts)),
                "throughput_array": _rate(throughput(slurm, jobs=jobs)),
                "throughput_sbatch": _rate(throughput(slurm, jobs=jobs, how="sbatch")),
                "load_average": os.getloadavg()[0],
            }
    with slurm_cluster(settings=FAULTS) as slurm:
        cancelled = cancel_to_zero(slurm)
        report["faults"] = {
            "settings": dict(FAULTS),
            "cancel": dataclasses.asdict(cancelled)
            | {"after_grace": cancelled.after_grace},
            "dead_slurmd": dataclasses.asdict(dead_slurmd_seen(slurm)),
        }
    return report


def _summary(starts: Sequence[Start]) -> dict[str, float]:
    figures: dict[str, float] = {"count": len(starts)}
    for name in ("from_call", "from_return"):
        values = [getattr(start, name) for start in starts]
        figures |= {
            f"{name}_seconds_p50": statistics.median(values),
            f"{name}_seconds_p99": quantile(values, 0.99),
        }
    return figures


def _rate(rate: Rate) -> dict[str, float]:
    return dataclasses.asdict(rate) | {"jobs_per_second": rate.jobs_per_second}


def _script(slurm: SlurmCluster, name: str, text: str) -> Path:
    path = slurm.folder / f"{name}.sh"
    path.write_text(text)
    return path


def _stamp(out: Path) -> float:
    """The wall time in `out`, once the whole line is there."""
    poll(
        lambda: out.exists() and out.read_text().endswith("\n"),
        within_seconds=JOB_SECONDS,
        what="first instruction of a job",
    )
    return float(out.read_text())


def _wait_until_idle(slurm: SlurmCluster) -> None:
    poll(
        lambda: not slurm.unfinished(),
        within_seconds=JOB_SECONDS,
        what="an empty queue",
    )


def _count_with(mark: str) -> int:
    """Living processes with `mark` in their environment; a zombie's is empty."""
    count = 0
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            count += f"{mark}\0".encode() in environ.read_bytes()
    return count


@contextlib.contextmanager
def _terminated_in_order() -> Iterator[None]:
    """SIGTERM ends this process through its `finally`s, so that no daemon is left."""

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--count", type=int, default=100, help="starts, with tuned settings"
    )
    parser.add_argument(
        "--default-count", type=int, default=30, help="starts, with defaults"
    )
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument(
        "--json", action="store_true", help="one JSON object on one line"
    )
    asked = parser.parse_args()
    try:
        with _terminated_in_order():
            report = measure_all(
                count=asked.count, default_count=asked.default_count, jobs=asked.jobs
            )
    except SlurmMissing as missing:
        print(missing, file=sys.stderr)
        return 3
    print(json.dumps(report, indent=None if asked.json else 2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
