"""A history of faults on a real Ray: heads, actors, agents, Ray's processes and whole
nodes die at random while jobs come and go. What became of the jobs is judged by what
their ranks wrote."""

import random
import shlex
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corral.domain.errors import CorralError
from corral.wire import api
from tests.ray_cluster import RayHouse

NODES: Final = ("r1", "r2")
TICK_SECONDS: Final = 0.2
RANK: Final = """
import os, sys, time
with open(sys.argv[1], "a", buffering=1) as log:
    def say(what):
        print(os.environ["CORRAL_ATTEMPT"], os.environ["RANK"], what, time.monotonic(), file=log)
    say("begins")
    for _ in range(int(sys.argv[2])):
        time.sleep(float(sys.argv[3]))
        say("lives")
    say("ends")
sys.exit(int(sys.argv[4]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a rank wrote. `at`: seconds of the machine's monotonic clock."""

    attempt: int
    rank: int
    what: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A job that was acknowledged, what it was to end with, and what Corral says of
    it."""

    id: str
    code: int
    job: api.JobDetail
    lines: Sequence[Line]


@dataclass(slots=True)
class History:
    """One run on this cluster, whose nodes are NODES. The same seed draws the same
    faults."""

    ray: RayHouse
    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    refused: int = 0  # submissions that nobody acknowledged
    _codes: dict[str, int] = field(default_factory=dict)

    def run(self, seconds: float) -> list[Told]:
        """Faults for so long, then calm until every job is over."""
        chance, over_at = random.Random(self.seed), time.monotonic() + seconds
        fault_at = 0.0
        while time.monotonic() < over_at:
            self._submit(chance)
            if time.monotonic() >= fault_at:
                self._fault(chance)
                fault_at = time.monotonic() + chance.uniform(1.0, 6.0)
            time.sleep(chance.uniform(0.1, 0.8))
        for node in NODES:
            self.ray.until_alive(node)
        return [self._told(id, code) for id, code in self._codes.items()]

    def _submit(self, chance: random.Random) -> None:
        name, code = (
            f"job-{len(self._codes) + self.refused}",
            chance.choice([0, 0, 0, 7, 21]),
        )
        words = [
            RANK,
            str(self._log(name)),
            str(chance.randint(1, 30)),
            f"{TICK_SECONDS}",
        ]
        run = shlex.join([sys.executable, "-c", *words, f"{code}"])
        needs = {
            "nodes": chance.choice([1, 1, 2]),
            "resources": {"cpu": 0.05, "memory": "32MB"},
        }
        try:
            id = self.ray.house.submit(
                name, run, **needs, retry={"user": 0, "infra": 20}
            )
            self._codes[id] = code
        except CorralError:
            self.refused += 1

    def _log(self, name: str) -> Path:
        return self.ray.shared / name

    def _fault(self, chance: random.Random) -> None:
        node = chance.choice(NODES)
        faults: dict[str, Callable[[str], bool]] = {
            "head": self._head,
            "actor": self._actor,
            "agent": self._agent,
            "ray": self._ray,
            "node": self._power,
        }
        name = chance.choice(list(faults))
        self.faults[name] += faults[name](node)

    def _head(self, node: str) -> bool:
        self.ray.house.kill_head()
        self.ray.house.up()
        return True

    def _actor(self, node: str) -> bool:
        actors = [one for one in self.ray.ray_of(node) if self.ray.is_actor(one)]
        for actor in actors:
            actor.signal(signal.SIGKILL)
        return bool(actors)

    def _agent(self, node: str) -> bool:
        agent = self.ray.agent(node)
        if agent is not None:
            agent.signal(signal.SIGKILL)
        return agent is not None

    def _ray(self, node: str) -> bool:
        self.ray.kill_ray(node)
        self.ray.start_ray(node)
        return True

    def _power(self, node: str) -> bool:
        self.ray.kill_node(node)
        self.ray.start_ray(node)
        return True

    def _told(self, id: str, code: int) -> Told:
        job = self.ray.house.until_over(id)
        lines = []
        with suppress(FileNotFoundError):
            for row in self._log(job.name).read_text().splitlines():
                attempt, rank, what, at = row.split()
                lines.append(
                    Line(attempt=int(attempt), rank=int(rank), what=what, at=float(at))
                )
        return Told(id=id, code=code, job=job, lines=lines)


def breaches(told: Iterable[Told]) -> list[str]:
    """What must not be: a rank that began twice in an attempt, two attempts at once, an
    end that is not the true one, an attempt that is not told."""
    return [f"{one.id}: {what}" for one in told for what in _breaches(one)]


def _breaches(told: Told) -> Iterable[str]:
    by_attempt: Mapping[int, list[Line]] = defaultdict(list)
    for line in told.lines:
        by_attempt[line.attempt].append(line)
    began = Counter(
        (line.attempt, line.rank) for line in told.lines if line.what == "begins"
    )
    yield from (
        f"rank {who} began {often} times" for who, often in began.items() if often > 1
    )
    for attempt, lines in by_attempt.items():
        earlier = [line.at for line in told.lines if line.attempt < attempt]
        if earlier and max(earlier) > min(line.at for line in lines):
            yield f"attempt {attempt} began while an earlier one lived"
    if told.job.exit_code != told.code:
        yield f"ended with {told.job.exit_code} by Corral's word, and with {told.code} by its own"
    ended = {line.rank for line in by_attempt[told.job.attempt] if line.what == "ends"}
    if len(ended) != len(told.job.nodes) and not told.code:
        yield f"is done, and ranks {sorted(ended)} alone have ended"
