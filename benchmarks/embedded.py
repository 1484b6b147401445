"""An embedded cluster for the benchmarks, started as by anybody; and how figures are told."""

import importlib
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import corral

CORRAL = str(Path(sys.executable).with_name("corral"))


@contextmanager
def cluster(*words: str) -> Iterator[tuple[Path, "corral.Client"]]:
    """(its directory, a client) of a cluster that is up; nothing of it is left afterwards."""
    root = Path(tempfile.mkdtemp(prefix="corral-bench-"))
    try:
        subprocess.run(
            [CORRAL, "up", "--dir", str(root), *words],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with corral.Client(dir=root) as client:
            yield root, client
    finally:
        down = [CORRAL, "down", "--dir", str(root), "-y"]
        subprocess.run(down, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(root, ignore_errors=True)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of all does not exceed, in the plain sense: one of them."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: Sequence[float], unit: str = "s") -> str:
    """For example: 0.12 s (0.11 to 0.14)."""
    median = statistics.median(values)
    return f"{median:.3g} {unit} ({min(values):.3g} to {max(values):.3g})"


def report(title: str, rows: Sequence[tuple[str, str, str]], notes: str = "") -> str:
    """A page: (what, figure, to reach) under the machine and the date."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in _cpuinfo()
            if line.startswith("model name")
        ),
        "?",
    )
    head = (
        f"# {title}\n\n{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {model}, {os.cpu_count()} CPUs, "
        f"Linux {platform.release()}, Python {platform.python_version()}; load when it ended: "
        f"{os.getloadavg()[0]:.1f}.\n"
    )
    table = ["| what | figure | to reach |", "| --- | --- | --- |"]
    table += [f"| {what} | {figure} | {bound} |" for what, figure, bound in rows]
    return "\n".join([head, *([notes, ""] if notes else []), *table]) + "\n"


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def keep(name: str, text: str, write: bool) -> None:
    """Print the page; keep it in benchmarks/results when asked to."""
    print(text)
    if write:
        folder = Path(__file__).resolve().parent / "results"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}-{time.strftime('%Y-%m-%d', time.gmtime())}.md").write_text(
            text
        )


def peer() -> ModuleType | None:
    """Slurm on this machine, or None with a word on why not."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    slurm = importlib.import_module("benchmarks.peers.slurm")
    if why := slurm.why_missing():
        print(f"no peer beside it: {why}")
        return None
    return slurm
