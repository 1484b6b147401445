"""A head over a real store, a node that attacks it, a neighbour that does not, and what
must hold after each attack."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_open,
)
from websockets.exceptions import ConnectionClosed

from corral.api import node_messages
from corral.api.metrics.families import OPEN_METRICS
from corral.api.node_rates import NodeRates
from corral.domain.ids import JobId, NodeId, UserName
from corral.domain.job import Retry
from corral.domain.job_states import JobState
from corral.domain.placement_constraints import Constraint, PlaceRule
from corral.domain.refill_budget import RefillBudget
from corral.ports.store import Store
from corral.store.postgres import PostgresStore
from corral.store.sqlite import SqliteStore
from corral.wire.agent_messages import Hello, encode
from tests.api.heads import Agent, Head, ended, eventually, serving, up
from tests.patience import PATIENCE_SECONDS
from tests.postgres import Server
from tests.worlds import gang, inventory

MEGABYTE = 1024 * 1024
MOST_GROWTH_BYTES = 100 * MEGABYTE  # of memory, by all attacks together
# of the store: pages, and the job that each check submits and stops
SLACK_BYTES = 48 * 1024
PARSED = 8  # each page of metrics so far apart is parsed whole: that takes 20 ms
ATTACKER, NEIGHBOUR = "n1", "n2"
EVE, BOB = UserName("eve"), UserName("bob")


@dataclass
class Cost:
    """What the checks have seen so far, for the page of results."""

    attacks: int = 0
    sent_bytes: int = 0
    slowest_seconds: float = 0.0
    grown_bytes: int = 0
    stored_bytes: int = 0


@dataclass
class Arena:
    """`victim` is a job of another user on the neighbour."""

    head: Head
    store_bytes: Any
    neighbour: Agent
    http: Any
    victim: JobId = JobId("")
    cost: Cost = field(default_factory=Cost)
    _memory: int = 0
    _stored: int = 0
    _sent: int = 0
    _checks: int = 0
    _series: frozenset[str] = frozenset()
    _lines: tuple[str, ...] = ()

    def begin(self) -> None:
        """Remember how things are before the first attack."""
        self.neighbour.beat(up((self.victim, 1)))
        self.check("nothing", 0)
        self._memory, self._stored = resident_bytes(), self.store_bytes()
        self._series = self._of_neighbour()
        self._lines = self._lines_of_victim()
        self._sent = self._checks = 0

    def own(self) -> JobId:
        """A job of the attacker that runs on its node."""
        control = self.head.control
        for id, job in control.world.jobs.items():
            if job.owner == EVE and job.state in (JobState.STARTING, JobState.RUNNING):
                return id
        self._end_all()
        # its own signals have closed it
        if not control.world.nodes[NodeId(ATTACKER)].takes_work:
            for word in ("clear", "uncordon"):
                self.http.post(f"/v1/nodes/{ATTACKER}/{word}")
        return self.submit("eves", EVE, ATTACKER)

    def _end_all(self) -> None:
        """The attacker's node says that nothing runs on it, so that something else
        can."""
        world = self.head.control.world
        held = [
            (job, number) for job, number, node in world.allocations if node == ATTACKER
        ]
        if held:
            agent = Agent(self.head, ATTACKER).hello()
            agent.beat(*map(ended, held))
            eventually(lambda: not any(key[2] == ATTACKER for key in world.allocations))
            agent.close()

    def submit(self, name: str, by: UserName, node: str, run: str = "true") -> JobId:
        place = PlaceRule(constraints=(Constraint(label="node", values=(node,)),))
        retry = Retry(user=0, infra=0)
        spec = replace(gang(name, gpus=1, place=place, retry=retry), run=run)
        (job,) = self.head.run(self.head.control.submit([spec], key="", by=by))
        placed = (JobState.STARTING, JobState.RUNNING)
        eventually(lambda: self.head.control.world.jobs[job.id].state in placed)
        return job.id

    def attempt(self, job: JobId) -> tuple[JobId, int]:
        return (job, self.head.control.world.attempts[job].number)

    def attack(self, frames: Sequence[bytes | str], hello: bytes | None = None) -> int:
        """Send the frames as the attacker's agent; how many bytes were sent."""
        sent = 0
        greeting = hello if hello is not None else greeting_of(ATTACKER)
        with self.head.dial(ATTACKER, "/v1/agents/heartbeats") as connection:
            reading = threading.Thread(target=_read_all, args=(connection,))
            reading.start()
            with suppress(ConnectionClosed, OSError):
                for frame in (greeting, *frames):
                    connection.send(frame)
                    sent += len(frame)
                connection.ping(ack_on_close=True).wait(PATIENCE_SECONDS)
            connection.close()
            reading.join(PATIENCE_SECONDS)
        return sent

    def check(self, attack: str, sent: int) -> None:
        """What must hold after each attack, by the words of the one that was made."""
        began = time.monotonic()
        probe = {
            "specs": [{"run": "true", "name": "probe"}],
            "key": f"probe-{self.cost.attacks}",
        }
        made = self.http.post("/v1/jobs", json=probe)
        assert made.status_code == 201, (attack, made.text)
        stopped = self.http.post(f"/v1/jobs/{made.json()['jobs'][0]['id']}/cancel")
        assert stopped.status_code == 202, (attack, stopped.text)
        took = time.monotonic() - began
        heard = self.head.control.facts.nodes[NodeId(NEIGHBOUR)].heard_at
        self.neighbour.beat(up((self.victim, 1)))
        assert self.head.control.facts.nodes[NodeId(NEIGHBOUR)].heard_at > heard, attack
        self.cost.slowest_seconds = max(self.cost.slowest_seconds, took)
        self.cost.attacks += 1
        self.cost.sent_bytes += sent
        self._sent += sent
        self._checks += 1
        if not self._series:
            return
        assert self._of_neighbour() == self._series, attack
        assert self._lines_of_victim() == self._lines, attack
        self.cost.grown_bytes = max(
            self.cost.grown_bytes, resident_bytes() - self._memory
        )
        assert self.cost.grown_bytes < MOST_GROWTH_BYTES, (attack, self.cost)
        self.cost.stored_bytes = self.store_bytes() - self._stored
        allowed = 2 * self._sent + self._checks * SLACK_BYTES + 2 * MEGABYTE
        assert self.cost.stored_bytes < allowed, (attack, self.cost, allowed)

    def _of_neighbour(self) -> frozenset[str]:
        """All series about the neighbour, without their values."""
        text = self.http.get("/metrics", headers={"Accept": OPEN_METRICS}).text
        assert text.endswith("# EOF\n")
        if self._checks % PARSED == 0:
            assert list(read_open(text))  # type: ignore[no-untyped-call]
        lines = (line for line in text.split("\n") if f'"{NEIGHBOUR}"' in line)
        return frozenset(line.rpartition(" ")[0] for line in lines)

    def _lines_of_victim(self) -> tuple[str, ...]:
        store: Store = self.head.store
        of_job = self.head.run(store.events(after=0, job=self.victim, limit=10_000))
        log = self.head.root / "logs" / self.victim
        logs = (
            [file.read_text() for file in sorted(log.rglob("*.log"))]
            if log.exists()
            else []
        )
        return (*(one.text for one in of_job), *logs)


def greeting_of(node: str, **other: Any) -> bytes:
    own: dict[str, Any] = {
        "protocol": 1,
        "node": NodeId(node),
        "boot": "boot-1",
        "address": "127.0.0.1",
        "inventory": inventory(2),
    }
    return encode(Hello(**(own | other)))


def _read_all(connection: Any) -> None:
    with suppress(ConnectionClosed, OSError):
        while True:
            connection.recv()


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def arena(root: Path, kind: str, server: Server | None) -> Iterator[Arena]:
    """On SQLite or PostgreSQL. The store is closed after the head."""
    file = root / "corral.db"
    address = server.database() if server is not None else ""
    store: Any = PostgresStore(address) if kind == "postgres" else SqliteStore(file)

    def of_file() -> int:
        return file.stat().st_size

    def of_server() -> int:
        with psycopg.connect(address) as connection:
            row = connection.execute(
                "SELECT pg_database_size(current_database())"
            ).fetchone()
        return int(row[0]) if row else 0

    with (
        patch.object(node_messages, "NodeRates", _roomy_pace),
        serving(root, store=store) as head,
    ):
        neighbour = Agent(head, NEIGHBOUR).hello()
        neighbour.beat()
        attacker = Agent(head, ATTACKER).hello()
        attacker.beat()
        attacker.close()
        eventually(lambda: _known(head))
        size = of_server if kind == "postgres" else of_file
        made = Arena(head, size, neighbour, head.http())
        made.victim = made.submit("bobs", BOB, NEIGHBOUR)
        neighbour.beat(up((made.victim, 1)))
        eventually(
            lambda: head.control.world.jobs[made.victim].state == JobState.RUNNING
        )
        made.begin()
        try:
            yield made
        finally:
            neighbour.close()
            made.http.close()
            head.run(store.close())


def _roomy_pace() -> NodeRates:
    """A node's budgets, with room for the inventories of all attacks: over its budget a
    node waits 2 s for each, and here that would be for each attack
    (tests/api/test_paced.py has the wait)."""
    return NodeRates(inventories=RefillBudget(0.5, 1_000))


def _known(head: Head) -> bool:
    return {ATTACKER, NEIGHBOUR} <= head.control.world.nodes.keys()
