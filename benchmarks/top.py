"""What `corral top` costs: its own CPU time, and that of the head that it looks at.

Run: .venv/bin/python benchmarks/top.py [--nodes N] [--jobs N] [--history N] [--seconds N]
     [--write FILE.md]

A head of its own process over SQLite: 1,000 nodes of 8 GPUs, all of which have said what their
sensors read, 10,000 unfinished jobs and a history of 100,000. The view is the real one under
textual's headless driver, 120 x 40, on each of its three tables, first while nothing happens, then
while a job ends or begins each half second (so that each second has news). CPU is what the kernel
counted for each of the two processes. No agent beats: only the view's own load is seen.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from corral.client import AsyncClient, Client
from corral.client.api_calls import ApiCall

T = TypeVar("T")
ROOT: Final = Path(__file__).resolve().parents[1]
SIZE: Final = (120, 40)
TABLES: Final = {"nodes": "1", "GPUs": "2", "jobs": "3"}
HISTORY_AT_ONCE: Final = 2_000
NEWS_SECONDS: Final = 0.5
STEP_KEYS: Final = ("down", "pagedown", "s", "end", "home")
TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(size) / 1024


def serve(root: Path, nodes: int, jobs: int, history: int) -> None:
    """The head: a line with its address and a token, then until its input ends."""
    from benchmarks.metrics import (
        sample_of,
    )  # none of this belongs to the view's memory
    from benchmarks.web_paint import add_history, fill
    from corral.domain.ids import NodeId
    from corral.store.sqlite import SqliteStore
    from tests.api.heads import TOKENS, Head, no_haste

    asyncio.run(fill(root / "corral.db", jobs, nodes, time.time()))
    with no_haste():
        store: Any = SqliteStore(root / "corral.db")
        head = Head(root, store=store).start()
        for number, id in enumerate(list(head.control.world.nodes)):
            head.control.sensed.newest[NodeId(id)] = sample_of(number)
        term = head.control.world.term
        for first in range(0, history, HISTORY_AT_ONCE):
            count = min(HISTORY_AT_ONCE, history - first)
            head.run(add_history(store, term, 1_000_000 + first, count))
        print(json.dumps({"url": head.url, "token": TOKENS["admin"]}), flush=True)
        sys.stdin.read()
        head.close()


@dataclass(frozen=True, slots=True)
class Where:
    """The head that is looked at."""

    pid: int
    url: str
    token: str


@contextmanager
def head_of(asked: argparse.Namespace) -> Iterator["Where"]:
    """A head in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "--serve",
            folder,
            "--nodes",
            str(asked.nodes),
            "--jobs",
            str(asked.jobs),
        ]
        words += ["--history", str(asked.history)]
        process = subprocess.Popen(
            [sys.executable, __file__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = next(one for one in process.stdout if one.startswith("{"))
            yield Where(process.pid, **json.loads(line))
        finally:
            process.stdin.close()
            process.wait(60)


@dataclass(frozen=True, slots=True)
class Load:
    """Shares of a core over so many seconds."""

    what: str
    view: float
    head: float
    megabytes: float
    listings: float  # answers a minute, but for the small question of each second


class Counting(AsyncClient):
    """A client that counts what is asked beside the newest event."""

    listings = 0

    async def _call(self, call: ApiCall[T]) -> T:
        self.listings += call.path != "/v1/events"
        return await super()._call(call)


class Usage:
    """What both processes have used since the last look."""

    def __init__(self, head: int, client: Counting | None = None) -> None:
        self.head, self.client = head, client
        self.begin()

    def begin(self) -> None:
        self.at = time.perf_counter()
        self.before = (cpu_seconds(os.getpid()), cpu_seconds(self.head), self._listings)

    @property
    def _listings(self) -> int:
        return self.client.listings if self.client is not None else 0

    def end(self, what: str) -> Load:
        seconds = time.perf_counter() - self.at
        view, head = cpu_seconds(os.getpid()), cpu_seconds(self.head)
        return Load(
            what,
            (view - self.before[0]) / seconds,
            (head - self.before[1]) / seconds,
            resident_megabytes(os.getpid()),
            60 * (self._listings - self.before[2]) / seconds,
        )


async def watch(
    asked: argparse.Namespace, head: Where
) -> tuple[list[Load], float, float]:
    """(loads, seconds until the first rows, seconds a key takes until it is drawn, at most)."""
    from corral.cli.top.app import Top

    usage, found = Usage(head.pid), []
    await asyncio.sleep(asked.seconds)
    found.append(usage.end("no view at all"))
    async with Counting(head.url, head.token) as client:
        app, usage.client = Top(client), client
        began = time.perf_counter()
        async with app.run_test(size=SIZE) as pilot:
            while app.feed.known.gpus is None or not app.table.rows:
                await pilot.pause(0.01)
            first = time.perf_counter() - began
            await asyncio.sleep(3.0)
            for name, key in TABLES.items():
                await pilot.press(key)
                usage.begin()
                await asyncio.sleep(asked.seconds)
                found.append(usage.end(f"{name}, nothing happens"))
            slowest = 0.0
            for table in TABLES.values():
                await pilot.press(table)
                for key in STEP_KEYS:
                    began = time.perf_counter()
                    await pilot.press(key)
                    slowest = max(slowest, time.perf_counter() - began)
            news = start_news(head)
            for name, key in TABLES.items():
                await pilot.press(key)
                usage.begin()
                await asyncio.sleep(asked.seconds)
                found.append(usage.end(f"{name}, news each second"))
            news.terminate()
            news.wait()
    return found, first, slowest


async def alone(asked: argparse.Namespace, head: Where) -> Load:
    """What the head takes for the news alone."""
    usage, news = Usage(head.pid), start_news(head)
    await asyncio.sleep(2.0)
    usage.begin()
    await asyncio.sleep(asked.seconds)
    found = usage.end("no view, news each second")
    news.terminate()
    news.wait()
    return found


def start_news(head: Where) -> "subprocess.Popen[str]":
    """Somebody who submits and cancels, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, __file__, "--news", head.url, head.token],
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )


def make_news(url: str, token: str) -> None:
    spec = {"name": "news", "run": "true", "resources": {"gpu": 8}}
    with Client(url, token) as client:
        while True:
            (job,) = client.submit(spec)
            time.sleep(NEWS_SECONDS)
            client.cancel(job.id)
            time.sleep(NEWS_SECONDS)


def answers(head: Where) -> dict[str, tuple[float, int]]:
    """Seconds and bytes of each of the view's questions, the best of five."""
    from corral.cli.top.jobs import ON_NODES

    found = {}
    with Client(head.url, head.token) as client:
        asks: dict[str, Callable[[], Any]] = {
            "the newest event": lambda: client.newest_events(1),
            "status": client.status,
            "gpus": client.gpus,
            "101 jobs": lambda: client.jobs(limit=101, states=ON_NODES),
            "1,001 jobs": lambda: client.jobs(limit=1001, states=ON_NODES),
        }
        for what, ask in asks.items():
            took, size = [], 0
            for _ in range(5):
                began = time.perf_counter()
                answer = ask()
                took.append(time.perf_counter() - began)
                size = len(json.dumps(_plain(answer)))
            found[what] = (min(took), size)
    return found


def _plain(answer: Any) -> Any:
    if isinstance(answer, list):
        return [one.model_dump(mode="json") for one in answer]
    return answer.model_dump(mode="json")


def report(
    asked: argparse.Namespace,
    loads: list[Load],
    took: dict[str, tuple[float, int]],
    first: float,
    slowest: float,
) -> str:
    day = datetime.now(tz=UTC).date()
    lines = [
        f"# corral top: what it costs, {day}",
        "",
        f"{platform.machine()}, {platform.system()} {platform.release()}; Python "
        f"{platform.python_version()}. {asked.nodes} nodes of 8 GPUs, {asked.jobs} unfinished "
        f"jobs, {asked.history} that are over, SQLite, loopback; {SIZE[0]} x {SIZE[1]} cells, "
        f"{asked.seconds:g} s each; this machine's {os.cpu_count()} cores are shared with others "
        f"(load {os.getloadavg()[0]:.1f}). The first rows were drawn after {first:.2f} s; the "
        f"slowest of {len(STEP_KEYS) * len(TABLES)} keys (moving, sorting, paging) took "
        f"{slowest * 1000:.0f} ms.",
        "",
        "| | the view, % of a core | the head, % of a core | listings a minute | the view, MB |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| {one.what} | {one.view:.1%} | {one.head:.1%} | {one.listings:.0f} "
            f"| {one.megabytes:.0f} |"
            for one in loads
        ),
        "",
        "Its questions, with the time to read the answer (best of five):",
        "",
        "| question | ms | kB |",
        "| --- | ---: | ---: |",
        *(
            f"| {what} | {took * 1000:.1f} | {size / 1000:.0f} |"
            for what, (took, size) in took.items()
        ),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--history", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--news", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve, asked.nodes, asked.jobs, asked.history)
        return
    if asked.news:
        make_news(*asked.news)
        return
    with head_of(asked) as head:
        took = answers(head)
        loads, first, slowest = asyncio.run(watch(asked, head))
        loads.append(asyncio.run(alone(asked, head)))
    text = report(asked, loads, took, first, slowest)
    print(text)
    if asked.write:
        asked.write.write_text(text)


if __name__ == "__main__":
    main()
