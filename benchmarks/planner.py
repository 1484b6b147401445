"""How long plans take: a whole search of layouts, and tables of rows.

Run: .venv/bin/python benchmarks/planner.py [--write FILE]
"""

import argparse
import csv
import gzip
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
DATA: Final = ROOT / "validation/data"
ROUNDS: Final = 5
ROWS: Final = 1_000


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def searched(model: str) -> float:
    """A search for 1,024 H100 in a process of its own, as a user has it, without its start."""
    code = (
        "import time; from corral.plan.train.plan import search; "
        "from corral.plan.train.layouts import TrainAsk; "
        "from corral.catalog.devices import device; from corral.catalog.model_names import model; "
        f"ask = TrainAsk(model=model({model!r}), device=device('h100-sxm'), gpus=1024); "
        "began = time.perf_counter(); search(ask); print(time.perf_counter() - began)"
    )
    return float(subprocess.check_output([sys.executable, "-c", code], text=True))


def predicted(kind: str) -> float:
    """So many rows, read before, in a process of its own."""
    code = (
        "import csv, gzip, time; from corral.domain.errors import Refusal; "
        "from corral.plan.predictors import predictor; "
        f"file = gzip.open({str(DATA / f'{kind}.csv.gz')!r}, 'rt', newline=''); "
        f"rows = list(csv.DictReader(file)); rows = (rows * {ROWS})[:{ROWS}]\n"
        f"began, one = time.perf_counter(), predictor({kind!r})\n"
        "for row in rows:\n"
        "    try: one(row)\n"
        "    except Refusal: pass\n"
        "print(time.perf_counter() - began)"
    )
    return float(subprocess.check_output([sys.executable, "-c", code], text=True))


def typed(words: Sequence[str]) -> float:
    """A whole command, from start to end."""
    command = [
        sys.executable,
        "-P",
        "-c",
        "from corral.cli.main import main; main()",
        *words,
    ]
    return seconds(
        lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    )


def rows_of(kind: str) -> int:
    with gzip.open(DATA / f"{kind}.csv.gz", "rt", newline="") as file:
        return sum(1 for _ in csv.DictReader(file))


def measured() -> list[tuple[str, str, float]]:
    """What, the most that is asked, and the median in seconds."""
    found: list[tuple[str, str, float]] = []

    def add(what: str, asked: str, once: Callable[[], float]) -> None:
        middle = statistics.median(once() for _ in range(ROUNDS))
        print(f"{what}: {middle:.2f} s", flush=True)
        found.append((what, asked, middle))

    for model in ("llama-3.1-70b", "llama-3.1-405b", "mixtral-8x7b"):
        add(
            f"all layouts of {model} on 1,024 GPUs",
            "1 s",
            lambda model=model: searched(model),
        )
    for kind in ("training", "memory_ci", "inference", "collectives"):
        what = f"{ROWS:,} rows of {kind} ({rows_of(kind):,} different ones)"
        add(what, "2 s", lambda kind=kind: predicted(kind))
    for words in (
        ("plan", "model", "llama-3.1-70b"),
        ("plan", "train", "llama-3.1-70b", "--gpus", "1024"),
        (
            "plan",
            "serve",
            "llama-3.1-70b",
            "--qps",
            "5",
            "--input",
            "1000",
            "--output",
            "300",
        ),
        (
            "plan",
            "cost",
        ),
    ):
        add(f"corral {' '.join(words)}", "", lambda words=words: typed(words))
    return found


def page(found: Sequence[tuple[str, str, float]]) -> str:
    lines = [f"| {what} | {asked} | {took:.2f} s |" for what, asked, took in found]
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return "\n".join(
        [
            f"# How long plans take, {day}\n",
            f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
            f"{platform.python_version()}, load {os.getloadavg()[0]:.1f}; the median of {ROUNDS} "
            "processes. No peer was at hand to be timed beside it.\n",
            "| what | asked | took |",
            "| --- | --- | --- |",
            *lines,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    text = page(measured())
    if given.write:
        given.write.write_text(text)


if __name__ == "__main__":
    main()
