"""How soon the pages are painted, and how soon a long history is listed.

Run: .venv/bin/python benchmarks/web_paint.py [--nodes N] [--jobs N] [--history N] [--write FILE.md]

A head over SQLite with 1,000 nodes of 8 GPUs and 10,000 unfinished jobs; a real Chromium over
loopback, with nothing in its cache, as on a first visit. `first paint` is the browser's own first
contentful paint; `all painted` is when every node's cell is drawn and a frame has passed, on the
overview and on the page of nodes (with its first rows; its scripts are cached by then). Then
100,000 jobs that are over are added, and pages of 100 are asked for as the page of jobs does, and
10,000 jobs in one answer. `of the head's CPU` is what the head's process has spent on an answer: on
a machine that others use, too, it says what the wall clock does not.
To reach: first paint <= 1 s; the page of 2,000 nodes <= 1 s; a page of 10,000 jobs <= 200 ms.
"""

import argparse
import asyncio
import http.client
import os
import platform
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.metrics import sample_of
from benchmarks.restart import inventory, work
from corral.api import create_app
from corral.boot.gc_tuning import search_rarely
from corral.domain.ids import NodeId, QueueName, Sequence, UserName, job_id
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.node import Liveness, Node
from corral.domain.resources import Resources
from corral.domain.world import Changes
from corral.store.sqlite import SqliteStore
from corral.web import Pages
from tests import chromium
from tests.api.heads import TOKENS, Head, no_haste

ROUNDS: Final = 7
TARGET_SECONDS: Final = 1.0
PAGE_SECONDS: Final = 0.2
SCREEN: Final[Any] = {"width": 1280, "height": 860}
PAINTED: Final = """async (cells) => {
  while (document.querySelectorAll('.rack a').length < cells)
    await new Promise(requestAnimationFrame);
  await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
  const first = performance.getEntriesByName('first-contentful-paint')[0];
  return [first.startTime / 1000, performance.now() / 1000];
}"""
LISTED: Final = """async () => {
  while (document.querySelectorAll('.job-row').length < 10)
    await new Promise(requestAnimationFrame);
  return performance.now() / 1000;
}"""


NODES: Final = """async (cells) => {
  while (document.querySelectorAll('.rack a').length < cells
      || document.querySelectorAll('tbody tr').length < Math.min(cells, 50))
    await new Promise(requestAnimationFrame);
  await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
  return performance.now() / 1000;
}"""


class Took(NamedTuple):
    least: float
    median: float
    most: float
    cpu: float


class WithPages(Head):
    def _app(self, settings: Any) -> Any:
        return Pages(
            create_app(self.control, channels=self.channels, settings=settings)
        )


async def fill(path: Path, jobs: int, nodes: int, now: float) -> None:
    """A cluster in full work: every fifth job has run for an hour, the others wait."""
    store = SqliteStore(path)
    term = (await store.lead()).term
    known = (
        Node(
            id=NodeId(f"n{number}"),
            inventory=replace(inventory(), labels=(("rack", f"r{number // 32}"),)),
            liveness=Liveness.ALIVE,
        )
        for number in range(nodes)
    )
    await store.commit(term, Changes(nodes=tuple(known)))
    for first in range(0, jobs, 500):
        rows: Any = work(range(first, min(jobs, first + 500)), nodes)
        began = now - 3600.0
        placed = tuple(
            replace(one, placed_at=began, running_at=began) for one in rows.attempts
        )
        await store.commit(
            term,
            replace(
                rows,
                jobs=tuple(
                    replace(one, submitted_at=began, since=began) for one in rows.jobs
                ),
                attempts=placed,
                allocations=tuple(
                    replace(one, placed_at=began) for one in rows.allocations
                ),
            ),
        )
    await store.close()


def ended(number: int) -> Job:
    spec = JobSpec(
        name=f"run-{number % 977}-{'train' if number % 3 else 'eval'}",
        run="python train.py",
        resources=Resources(gpu_millis=1000, cpu_millis=1000, memory_bytes=2**30),
        queue=QueueName(f"team-{number % 7}"),
    )
    return Job(
        id=job_id(number),
        spec=spec,
        owner=UserName(f"user-{number % 41}"),
        submitted=Sequence(number),
        submitted_at=1000.0 + number,
        state=JobState.FAILED if number % 10 == 0 else JobState.DONE,
        since=1000.0 + number,
        exit_code=0,
        started_at=1001.0 + number,
        ended_at=1010.0 + number,
    )


async def add_history(store: SqliteStore, term: int, first: int, count: int) -> None:
    for begin in range(first, first + count, 1_000):
        rows = tuple(
            ended(one) for one in range(begin, min(begin + 1_000, first + count))
        )
        await store.commit(term, Changes(jobs=rows))


def timed(rounds: int, once: Callable[[], object]) -> Took:
    """Seconds by the clock, and of this process's CPU, which is the head's and the asker's."""
    took, spent = [], []
    for _ in range(rounds):
        began, busy = time.perf_counter(), time.process_time()
        once()
        took.append(time.perf_counter() - began)
        spent.append(time.process_time() - busy)
    return Took(min(took), statistics.median(took), max(took), statistics.median(spent))


class Painted(NamedTuple):
    """Seconds by the clock, and of the tasks that the page itself ran."""

    median: float
    most: float
    tasks: float


def paint(head: Head, nodes: int) -> dict[str, Painted]:
    took: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    with head.http("olga") as caller, chromium.browser() as browser:
        for _ in range(ROUNDS):
            context = browser.new_context(viewport=SCREEN)
            page = context.new_page()
            page.once("dialog", lambda asked: asked.accept())
            page.goto(caller.post("/v1/session/links").json()["url"])
            page.get_by_role("heading", name="Overview").wait_for()
            kept = context.storage_state()
            context.close()
            context = browser.new_context(viewport=SCREEN, storage_state=kept)
            page = context.new_page()
            spent = tasks_of(page)
            page.goto(f"{head.url}/", wait_until="commit")
            first, whole = page.evaluate(PAINTED, nodes)
            took["first paint"].append((first, 0.0))
            took["all painted"].append((whole, spent()))
            page.goto(f"{head.url}/jobs", wait_until="commit")
            took["page of jobs"].append((page.evaluate(LISTED), spent()))
            page.goto(f"{head.url}/nodes", wait_until="commit")
            took["page of nodes, all painted"].append(
                (page.evaluate(NODES, nodes), spent())
            )
            context.close()
    return {name: painted(found) for name, found in took.items()}


def painted(found: list[tuple[float, float]]) -> Painted:
    clock, tasks = zip(*found, strict=True)
    return Painted(statistics.median(clock), max(clock), statistics.median(tasks))


def tasks_of(page: Any) -> Callable[[], float]:
    """Ask the browser how long the tasks of the page took since it was last opened."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def seconds() -> float:
        found = session.send("Performance.getMetrics")["metrics"]
        return next(
            float(one["value"]) for one in found if one["name"] == "TaskDuration"
        )

    return seconds


def listings(head: Head) -> dict[str, Took]:
    asked = {
        "the newest 100": {},
        "of a state": {"state": "FAILED"},
        "of an owner": {"owner": "user-7"},
        "of a queue": {"queue": "team-3"},
        "by a part of a name": {"text": "run-976-"},
        "by a name that none has": {"text": "nobody-has-this"},
    }
    with head.http("vera") as caller:

        def ask(query: dict[str, str]) -> None:
            answer = caller.get("/v1/jobs", params={"all": 1, "limit": 100, **query})
            assert answer.status_code == 200, answer.text

        found = {
            what: timed(5, lambda query=query: ask(query))
            for what, query in asked.items()
        }
    for what, everything in (("over", 1), ("unfinished", 0)):
        for coding in ("identity", "gzip"):
            name = f"10,000 {what} in one answer, {coding}"
            found[name] = timed(9, partial(ask_whole, head, everything, coding))
    return found


def ask_whole(head: Head, everything: int, coding: str) -> None:
    """As a browser would, which reads an answer without Python."""
    asked = http.client.HTTPConnection("127.0.0.1", head.port, timeout=60)
    path = f"/v1/jobs?all={everything}&limit=10000"
    headers = {"Authorization": f"Bearer {TOKENS['vera']}", "Accept-Encoding": coding}
    asked.request("GET", path, headers=headers)
    answer = asked.getresponse()
    body = answer.read()
    assert answer.status == 200, body[:500]
    assert len(body) > 100_000, len(body)
    asked.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--history", type=int, default=100_000)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    chromium.build_pages()
    with tempfile.TemporaryDirectory() as folder, no_haste():
        root = Path(folder)
        asyncio.run(fill(root / "corral.db", asked.jobs, asked.nodes, time.time()))
        store: Any = SqliteStore(root / "corral.db")
        head = WithPages(root, store=store).start()
        for number, id in enumerate(list(head.control.world.nodes)):
            head.control.sensed.newest[NodeId(id)] = replace(sample_of(number), at=1.0)
        search_rarely()  # as the head's own process does
        pages = paint(head, asked.nodes)
        term = head.control.world.term
        head.run(add_history(store, term, 1_000_000, asked.history))
        listed = listings(head)
        head.close()
    text = report(asked, pages, listed)
    print(text)
    if asked.write:
        asked.write.write_text(text)


def report(
    asked: argparse.Namespace,
    pages: dict[str, Painted],
    listed: dict[str, Took],
) -> str:
    day = datetime.now(tz=UTC).date()
    lines = [
        f"# The pages: how soon they are painted, {day}",
        "",
        f"{platform.machine()}, {platform.system()} {platform.release()}; Python "
        f"{platform.python_version()}. {asked.nodes} nodes of 8 GPUs, {asked.jobs} unfinished "
        f"jobs, SQLite, loopback, Chromium with an empty cache, {ROUNDS} visits; head and browser "
        f"share this machine's {os.cpu_count()} cores with others (load {os.getloadavg()[0]:.1f}, "
        f"niceness {os.nice(0)} beside their 10). To reach: first paint and the page of "
        f"2,000 nodes <= {TARGET_SECONDS:g} s.",
        "",
        "| what | median, s | most, s | tasks of the page, s |",
        "| --- | ---: | ---: | ---: |",
        *(
            f"| {what} | {one.median:.3f} | {one.most:.3f} | {one.tasks:.3f} |"
            for what, one in pages.items()
        ),
        "",
        f"With {asked.history} further jobs that are over, a page of 100, as the head answers, and "
        f"10,000 whole rows in one answer; to reach: {PAGE_SECONDS:g} s for 10,000. Head and asker "
        "are one process, whose CPU is the last column: the time on a machine with nothing else.",
        "",
        "| which | least, s | median, s | most, s | CPU, s |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| {what} | {one.least:.3f} | {one.median:.3f} | {one.most:.3f} | {one.cpu:.3f} |"
            for what, one in listed.items()
        ),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
