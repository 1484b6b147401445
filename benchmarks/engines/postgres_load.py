"""From decision to commit on PostgreSQL, with 1,000 simulated agents and 10,000 jobs.

Run: .venv/bin/python benchmarks/engines/postgres_load.py [--agents 1000] [--jobs 10000] [--write]

The head's own loop over a real server (fsync on). The agents are in its process: each says all
that it sees each second and at each change, as over the channel. Jobs of one GPU arrive in
submissions of 50, as fast as they are acknowledged, and run for 5 to 15 s. Timed is the store's
part of a tick, from what was decided to its durable commit. To reach (issue 4): p99 of 100 ms.

On a machine that others use, the head's writer and the server's process wait for a CPU. The kernel
says for how long (schedstat): the two take turns, so that time is told beside the whole.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from embedded import keep, quantile, report, spread
from sqlalchemy import Connection

from corral.boot.clock import SystemClock
from corral.boot.gc_tuning import search_rarely
from corral.control import Control
from corral.domain.attempt import Exit
from corral.domain.desired_state import DesiredState
from corral.domain.ids import NodeId
from corral.domain.node import NodeKind
from corral.domain.observed_state import AttemptKey, NodeFacts, Phase, Seen
from corral.domain.world import Changes, Event
from corral.store import tables
from corral.store.commits import commit
from corral.store.postgres import PostgresStore
from tests.postgres import server
from tests.worlds import ALICE, gang, node

GPUS = 8
SUBMISSION = 50


class Agents:
    """An engine and all of its agents."""

    name = "simulated"
    cannot: Mapping[str, str] = {}
    could_bring: Sequence[NodeKind] = ()
    restarts_in_place = True
    shown_by = ""

    def __init__(self, count: int, chance: random.Random) -> None:
        self.control: Control
        self.nodes = {
            one.id: one for one in (node(f"n{i}", gpus=GPUS) for i in range(count))
        }
        self.seen: dict[NodeId, dict[AttemptKey, Seen]] = {id: {} for id in self.nodes}
        self.chance = chance
        self.ended = 0

    def observe(self) -> Mapping[NodeId, str]:
        return {}

    def gone(self) -> Set[NodeId]:
        return frozenset()

    def says(self, key: AttemptKey) -> str:
        return ""

    def apply(self, wanted: DesiredState) -> None:
        asyncio.get_running_loop().call_soon(self._obey, wanted)

    def _obey(self, wanted: DesiredState) -> None:
        here = self.seen[wanted.node]
        fresh = [launch.key for launch in wanted.run if launch.key not in here]
        for key in fresh:
            here[key] = Seen(key=key, phase=Phase.UP, started_at=time.time())
            seconds = self.chance.uniform(5.0, 15.0)
            asyncio.get_running_loop().call_later(seconds, self._end, wanted.node, key)
        gone = [key for key in wanted.settled if here.pop(key, None)]
        if fresh or gone:
            self.beat(wanted.node)

    def _end(self, id: NodeId, key: AttemptKey) -> None:
        self.seen[id][key] = Seen(
            key=key, phase=Phase.ENDED, exits=((0, Exit(code=0)),)
        )
        self.ended += 1
        self.beat(id)

    def beat(self, id: NodeId) -> None:
        one = self.nodes[id]
        word = NodeFacts(
            node=id,
            boot=one.boot,
            heard_at=self.control.serving_seconds(),
            inventory=one.inventory,
            seen=tuple(self.seen[id].values()),
        )
        self.control.hear(word)

    async def run(self) -> None:
        """Each beats once a second, one after the other."""
        while True:
            began = time.monotonic()
            for at, id in enumerate(self.nodes):
                self.beat(id)
                if at % 50 == 49:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(max(0.0, 1.0 - (time.monotonic() - began)))


def without_cpu_seconds(*stats: Path) -> float:
    """How long these threads have been ready to run while others ran."""
    return sum(int(one.read_text().split()[1]) for one in stats) / 1e9


class Timed(PostgresStore):
    """Remembers how long each commit took, how long the head worked for it meanwhile, and how long
    the writer and the server's process had no CPU."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.commits: list[float] = []
        self.worked: list[float] = []
        self.waited: list[float] = []
        self._stats: list[Path] = []
        tables.writes.commit = self._counted  # type: ignore[assignment]

    def _counted(self, *given: Any) -> "list[Event]":
        began = time.thread_time()
        try:
            return commit(*given)
        finally:
            self.worked.append(time.thread_time() - began)

    async def _find_stats(self) -> None:
        def find(connection: Connection) -> None:
            server = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            here = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._stats = [Path(here), Path(f"/proc/{server}/schedstat")]

        await self._writer.ask(find)

    async def commit(self, term: int, changes: Changes) -> "list[Event]":
        if not self._stats:
            await self._find_stats()
        waited, began = without_cpu_seconds(*self._stats), time.perf_counter()
        events = await super().commit(term, changes)
        self.commits.append(time.perf_counter() - began)
        self.waited.append(without_cpu_seconds(*self._stats) - waited)
        return list(events)


async def load(url: str, agents: int, jobs: int) -> tuple[Timed, list[float], float]:
    """The store, the seconds of each submission until acknowledged, those until all was over."""
    store, engine, clock = Timed(url), Agents(agents, random.Random(7)), SystemClock()
    control = engine.control = Control(store=store, engine=engine, clock=clock)
    await control.start()
    search_rarely()
    parts = [asyncio.create_task(control.run()), asyncio.create_task(engine.run())]
    while len(control.world.nodes) < agents:
        await asyncio.sleep(0.1)
    store.commits.clear()
    store.worked.clear()
    store.waited.clear()
    acknowledged, began = [], time.monotonic()
    for number in range(jobs // SUBMISSION):
        at = time.perf_counter()
        specs = [gang(f"j{number}-{i}", nodes=1, gpus=1) for i in range(SUBMISSION)]
        await control.submit(specs, key=f"k{number}", by=ALICE)
        acknowledged.append(time.perf_counter() - at)
    while control.world.jobs:
        assert not any(part.done() for part in parts), "a part of the head has ended"
        await asyncio.sleep(0.2)
    whole = time.monotonic() - began
    for part in parts:
        part.cancel()
    await asyncio.gather(*parts, return_exceptions=True)
    await store.close()
    return store, acknowledged, whole


def bare_fsync_millis() -> float:
    """What the disk takes for one write and fsync here and now: p99 of 200."""
    found = []
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        for _ in range(200):
            began = time.perf_counter()
            file.write(b"x" * 8192)
            file.flush()
            os.fsync(file.fileno())
            found.append(time.perf_counter() - began)
    return quantile(found, 0.99) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    with server(durable=True) as database:
        store, acknowledged, whole = asyncio.run(
            load(database.database(), asked.agents, asked.jobs)
        )
    millis = [one * 1000 for one in store.commits]
    alone = [
        (all_ - cpu) * 1000
        for all_, cpu in zip(store.commits, store.waited, strict=True)
    ]
    rows = [
        ("decision to commit, p50", f"{quantile(millis, 0.5):.1f} ms", ""),
        ("decision to commit, p99", f"{quantile(millis, 0.99):.1f} ms", "100 ms"),
        ("the longest", f"{max(millis):.1f} ms", ""),
        ("less the time without a CPU, p50", f"{quantile(alone, 0.5):.1f} ms", ""),
        (
            "less the time without a CPU, p99",
            f"{quantile(alone, 0.99):.1f} ms",
            "100 ms",
        ),
        (
            "of it the head's own CPU, p50",
            f"{quantile(store.worked, 0.5) * 1000:.1f} ms",
            "",
        ),
        (
            "of it the head's own CPU, p99",
            f"{quantile(store.worked, 0.99) * 1000:.1f} ms",
            "",
        ),
        ("commits", f"{len(millis):,}", ""),
        (f"a submission of {SUBMISSION} until acknowledged", spread(acknowledged), ""),
        ("from the first submission until all jobs were over", f"{whole:.0f} s", ""),
        ("a bare write and fsync, p99", f"{bare_fsync_millis():.1f} ms", ""),
    ]
    title = f"PostgreSQL under load: {asked.agents:,} agents, {asked.jobs:,} jobs"
    keep("postgres_load", report(title, rows), asked.write)


if __name__ == "__main__":
    main()
