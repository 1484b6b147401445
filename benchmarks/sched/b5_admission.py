"""B5: admission end to end in real time, with Kueue's two workloads of its scalability test.

Run: .venv/bin/python benchmarks/sched/b5_admission.py [--workload baseline|large] [--share 1.0]

The head is real: control with the SQLite store and the HTTP API on loopback. The engine is
simulated: a job "runs" for its time without a process. A second process submits over HTTP, in one
batch a tick of 20 ms (what is due by then). The makespan runs from the first submission to the end
of the last job. A unit is a GPU; a node holds what a cohort of queues has.
Source: kubernetes-sigs/kueue, test/performance/scheduler/configs (baseline, large-scale); to reach
(issue 3): 72 s and 30 s; Kueue's own 351 s and 1,179 s.
"""

import argparse
import asyncio
import cProfile
import json
import multiprocessing
import os
import pstats
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvicorn
import uvloop
from embedded import keep, report

from corral import Client, __version__
from corral.api import ApiSettings, Channels, create_app
from corral.boot.clock import SystemClock
from corral.boot.directory_tokens import DirectoryToken
from corral.boot.gc_tuning import search_rarely
from corral.boot.key_rotation import HeadKeys
from corral.boot.secret_encryption import KeyRing
from corral.control import Control
from corral.domain.attempt import Exit
from corral.domain.desired_state import DesiredState
from corral.domain.engine_limit import EngineLimit
from corral.domain.ids import BootId, NodeId, QueueName, UserName
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.node import NodeKind
from corral.domain.observed_state import AttemptKey, NodeFacts, Phase, Seen
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.requests import SetQueues
from corral.domain.resources import Gpu, Inventory
from corral.store.sqlite import SqliteStore

BATCH_SECONDS = 0.02
BEAT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs of one size in every queue: so many, so far apart, so long."""

    name: str
    count: int
    units: int
    every_seconds: float
    runs_seconds: float
    priority: int


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    cohorts: int
    queues: int  # of each cohort
    kinds: tuple[Kind, ...]
    nominal: int = 20
    borrow: int = 100
    goal_seconds: float = 0.0
    kueue_seconds: float = 0.0


WORKLOADS = {
    "baseline": Workload(
        "baseline",
        5,
        6,
        (
            Kind("small", 350, 1, 0.1, 0.2, 50),
            Kind("medium", 100, 5, 0.5, 0.5, 100),
            Kind("large", 50, 20, 1.2, 1.0, 200),
        ),
        goal_seconds=72,
        kueue_seconds=351,
    ),
    "large": Workload(
        "large",
        10,
        100,
        (
            Kind("small", 35, 1, 0.06, 0.2, 50),
            Kind("medium", 11, 5, 0.3, 0.35, 100),
            Kind("large", 4, 20, 0.7, 0.7, 200),
        ),
        goal_seconds=30,
        kueue_seconds=1179,
    ),
}


@dataclass
class SimulatedEngine:
    """Starts what is wanted at once, and ends it when its time is over. No process, no file."""

    name: str = "simulated"
    cannot: Mapping[str, EngineLimit] = field(default_factory=dict)
    could_bring: Sequence[NodeKind] = ()
    restarts_in_place: bool = True
    shown_by: str = ""
    trouble: str = ""
    is_unreachable: bool = False
    control: Control | None = None
    inventories: dict[NodeId, Inventory] = field(default_factory=dict)
    seen: dict[NodeId, dict[AttemptKey, Seen]] = field(default_factory=dict)
    dirty: set[NodeId] = field(default_factory=set)
    ended: int = 0

    def observe(self) -> Mapping[NodeId, str]:
        return {}

    def gone(self) -> Set[NodeId]:
        return frozenset()

    def says(self, key: AttemptKey) -> str:
        return ""

    def apply(self, wanted: DesiredState) -> None:
        here = self.seen[wanted.node]
        for launch in wanted.run:
            if launch.key not in here:
                here[launch.key] = Seen(key=launch.key, phase=Phase.UP)
                self.tell(wanted.node)
                seconds = float(launch.run.split()[1])
                asyncio.get_running_loop().call_later(
                    seconds, self.end, wanted.node, launch.key
                )
        for key in wanted.settled:
            here.pop(key, None)

    def end(self, node: NodeId, key: AttemptKey) -> None:
        self.ended += 1
        self.seen[node][key] = Seen(
            key=key, phase=Phase.ENDED, exits=((0, Exit(code=0)),)
        )
        self.tell(node)

    def tell(self, node: NodeId) -> None:
        """One word a node for all that happens in one turn of the loop."""
        if not self.dirty:
            asyncio.get_running_loop().call_soon(self.say)
        self.dirty.add(node)

    def say(self) -> None:
        assert self.control is not None
        nodes, self.dirty = self.dirty, set()
        for node in nodes:
            self.control.hear(
                NodeFacts(
                    node=node,
                    boot=BootId("b"),
                    heard_at=self.control.serving_seconds(),
                    inventory=self.inventories[node],
                    seen=tuple(self.seen[node].values()),
                )
            )


def tree_of(workload: Workload) -> tuple[Queue, ...]:
    """A parent a cohort; below it its queues, each with GPUs of its own that it lends."""
    queues = [Queue(name=DEFAULT_QUEUE)]
    for cohort in range(workload.cohorts):
        parent = QueueName(f"c{cohort}")
        whole = workload.nominal * workload.queues * 1000
        queues.append(
            Queue(name=parent, nominal=((ANY_TYPE, whole),), borrow_limit_millis=0)
        )
        queues += [
            Queue(
                name=QueueName(f"c{cohort}q{number}"),
                parent=parent,
                nominal=((ANY_TYPE, workload.nominal * 1000),),
                borrow_limit_millis=workload.borrow * 1000,
            )
            for number in range(workload.queues)
        ]
    return tuple(queues)


def submit_all(url: str, token: str, workload: Workload, share: float) -> None:
    """The second process: each job as near to its time as batches allow."""
    due = []
    for cohort in range(workload.cohorts):
        for queue in range(workload.queues):
            for kind in workload.kinds:
                for number in range(int(kind.count * share)):
                    name = f"c{cohort}q{queue}-{kind.name}-{number}"
                    spec = {
                        "name": name,
                        "run": f"sleep {kind.runs_seconds}",
                        "priority": kind.priority,
                        "queue": f"c{cohort}q{queue}",
                        "resources": {"gpu": kind.units},
                    }
                    due.append((number * kind.every_seconds, name, spec))
    due.sort(key=lambda one: one[:2])
    with Client(url=url, token=token) as client:
        began, at = time.monotonic(), 0
        while at < len(due):
            now = time.monotonic() - began
            upto = at
            while upto < len(due) and due[upto][0] <= now and upto - at < 2000:
                upto += 1
            if upto > at:
                client.submit(
                    [spec for _, _, spec in due[at:upto]], key=secrets.token_hex(8)
                )
                at = upto
            time.sleep(BATCH_SECONDS)


def _add_nodes(engine: SimulatedEngine, workload: Workload) -> None:
    units = workload.nominal * workload.queues
    each = min(units, 200)
    for number in range(workload.cohorts * units // each):
        id = NodeId(f"n{number}")
        gpus = tuple(
            Gpu(index=i, uuid=f"{id}-{i}", type="t", memory_bytes=1)
            for i in range(each)
        )
        engine.inventories[id] = Inventory(
            gpus=gpus, cpu_millis=10**9, memory_bytes=10**15
        )
        engine.seen[id] = {}


async def head(workload: Workload, share: float, root: Path) -> tuple[int, float]:
    clock = SystemClock()
    engine = SimulatedEngine()
    _add_nodes(engine, workload)
    store = SqliteStore(root / "corral.db", fresh_id=clock.fresh_id)
    admin = DirectoryToken.of_admin(
        store, root / "token", clock.wall, lambda secret: None
    )
    await admin.begin()
    token = admin.secret
    ring = KeyRing.load(root / "key")
    keys = HeadKeys(store=store, ring=ring, wall=clock.wall, several=False)
    await keys.begin()
    control = Control(store=store, engine=engine, clock=clock)
    engine.control = control
    await control.start()
    search_rarely()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        about = ApiSettings(
            root=root,
            url=url,
            pid=os.getpid(),
            started_at=clock.wall(),
            version=__version__,
            seals=keys.ring,
            rotate=keys.rotate,
            stop=lambda: None,
        )
        app = create_app(control, channels=Channels(), settings=about)
        config = uvicorn.Config(app, http="httptools", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        parts = [
            asyncio.create_task(server.serve(sockets=[listening])),
            asyncio.create_task(control.run()),
        ]
        for node in engine.seen:
            engine.tell(node)
        while sum(node.takes_work for node in control.world.nodes.values()) < len(
            engine.seen
        ):
            await asyncio.sleep(0.01)
        await control.ask(
            SetQueues(queues=tree_of(workload), whole=True), by=UserName("bench")
        )
        result = await measured(url, token, workload, share, engine)
        server.should_exit = True
        await parts[0]
        parts[1].cancel()
    await store.close()
    return result


async def measured(
    url: str, token: str, workload: Workload, share: float, engine: SimulatedEngine
) -> tuple[int, float]:
    jobs = (
        sum(int(k.count * share) for k in workload.kinds)
        * workload.queues
        * workload.cohorts
    )
    submitter = multiprocessing.get_context("spawn").Process(
        target=submit_all, args=(url, token, workload, share)
    )
    submitter.start()
    assert engine.control is not None
    while not engine.control.world.jobs:
        await asyncio.sleep(0.005)
    began = time.monotonic()
    beaten = began
    while engine.ended < jobs or engine.control.world.jobs:
        await asyncio.sleep(0.02)
        if time.monotonic() - beaten > BEAT_SECONDS:
            beaten = time.monotonic()
            for node in engine.seen:
                engine.tell(node)
            if not submitter.is_alive() and submitter.exitcode:
                raise SystemExit("the submitter failed")
    took = time.monotonic() - began
    await asyncio.to_thread(submitter.join)
    return jobs, took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="baseline")
    parser.add_argument("--share", type=float, default=1.0, help="of each kind's jobs")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    workload = WORKLOADS[asked.workload]
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory(prefix="corral-b5-") as root:
        if asked.profile:
            profile.enable()
        jobs, took = uvloop.run(head(workload, asked.share, Path(root)))
        profile.disable()
    if asked.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    rows = [
        (
            f"{workload.name}: {jobs} jobs, makespan",
            f"{took:.1f} s ({jobs / took:.0f} jobs/s)",
            f"{workload.goal_seconds:.0f} s; Kueue {workload.kueue_seconds:.0f} s",
        )
    ]
    keep(
        f"sched-b5-{workload.name}",
        report("B5: admission end to end", rows),
        asked.write,
    )
    if asked.json:
        print(json.dumps({"workload": workload.name, "jobs": jobs, "makespan_s": took}))


if __name__ == "__main__":
    main()
