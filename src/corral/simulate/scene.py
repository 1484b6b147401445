"""One world from one seed: nodes, people, heads and faults, until all has come to its end."""

import asyncio
import traceback
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from random import Random

import structlog

from corral.domain.facts import AttemptKey
from corral.domain.ids import JobId, NodeId
from corral.domain.job import Job
from corral.domain.moves import FINAL, JobState
from corral.domain.retention import Retention
from corral.domain.wanted import Launch
from corral.domain.wishes import Cancel, Resume, SetNode
from corral.simulate.auditor import Auditor
from corral.simulate.clock import SimulatedClock
from corral.simulate.database import Database
from corral.simulate.evidence import Evidence
from corral.simulate.faults import Faults
from corral.simulate.forgetting import ALWAYS_SECONDS
from corral.simulate.head import Head
from corral.simulate.lives import Life
from corral.simulate.loop import Process, VirtualLoop
from corral.simulate.network import Network
from corral.simulate.node import SimulatedNode, inventory
from corral.simulate.people import People
from corral.simulate.ranks import Gang
from corral.simulate.wishes import draw_labels

KEPT_LINES = 60
STUCK_SECONDS = 400.0  # after the last fault, so long without the end of any job is starvation
LOOK_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a world ended. `rule` is the invariant that was broken first, "" when none was."""

    seed: int
    rule: str
    text: str
    digest: str
    virtual_seconds: float
    jobs: int
    attempts: int
    commits: int
    lines: tuple[str, ...]


def simulate(seed: int, *, verbose: bool = False) -> Outcome:
    """Run the world of this seed to its end, or to the first breach of an invariant."""
    with _silent_logs():
        scene = Scene(seed, verbose=verbose)
        try:
            return scene.run()
        finally:
            scene.loop.close()


class Scene:
    """Everything there is in one world. All chance comes from named streams of its seed."""

    def __init__(self, seed: int, *, verbose: bool) -> None:
        self.seed = seed
        self._verbose = verbose
        self._breach: tuple[str, str] | None = None
        self._digest = blake2b(digest_size=8)
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._gangs: dict[AttemptKey, Gang] = {}
        self.loop = VirtualLoop(self._uncaught)
        self.chance = self.stream("scene")
        self.clock = SimulatedClock(self.loop, self.stream("clock"))
        self.network = Network(self.loop, self.stream("network"))
        self.evidence = Evidence()
        self.database = Database(self)
        self.auditor = Auditor(self)
        self.lives: dict[str, Life] = {}
        self.failed: dict[JobId, int] = defaultdict(int)
        self.heads: list[Head] = []
        self.gpus = self.chance.choice([1, 2, 2, 4, 8])
        self.shares = self.chance.random() < 0.4
        self.wishful = self.stream("wishful").random() < 0.5
        self.nodes: dict[NodeId, SimulatedNode] = {}
        self.people = People(self)
        self.faults = Faults(self)
        self.faulty_seconds = self.chance.uniform(20.0, 45.0)
        self.retention = draw_retention(self.stream("retention"))
        self._healed_at = 0.0

    # -- time and chance -------------------------------------------------------------------------

    def stream(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")

    def now(self) -> float:
        return self.loop.time()

    async def nap(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # -- its course ------------------------------------------------------------------------------

    def run(self) -> Outcome:
        wishes = self.stream("labels")
        for number in range(self.chance.choice([1, 2, 3, 3, 4, 5, 6, 8])):
            id = NodeId(f"n{number + 1}")
            self.network.join(id)
            labels = draw_labels(wishes) if self.wishful else ()
            offer = inventory(self.gpus, shares=self.shares, labels=labels)
            self.nodes[id] = SimulatedNode(self, id, offer)
        self.start_head()
        self.people.plan(self.chance.randint(5, 14), self.faulty_seconds)
        self.faults.plan(self.chance.choice([0, 2, 4, 8, 14]), self.faulty_seconds)
        self.loop.later(self.faulty_seconds, self._heal)
        self.loop.run_forever()
        rule, text = self._breach or ("", "")
        return Outcome(
            seed=self.seed,
            rule=rule,
            text=text,
            digest=self._digest.hexdigest(),
            virtual_seconds=self.now(),
            jobs=len(self.auditor.jobs),
            attempts=len(self.auditor.attempts),
            commits=self.auditor.commits,
            lines=tuple(self._lines),
        )

    def _heal(self) -> None:
        self.tell("the faults are over")
        self.faults.heal_all()
        self._healed_at = self.now()
        self._look(len(self.auditor.jobs), self.now() + STUCK_SECONDS)

    def _look(self, left: int, deadline: float) -> None:
        """I10: everything comes to its end; then nothing is left anywhere."""
        self.auditor.giving.look(self._healed_at)
        for node in self.auditor.nodes.values():
            if node.cordoned:
                self.people.ask(SetNode(node=node.id, to="uncordon"))
        for job in self.auditor.jobs.values():
            if self._is_hopeless(job):
                self.people.ask(Cancel(job=job.id))
            elif job.state == JobState.SUSPENDED:
                self.people.ask(Resume(job=job.id))
        waiting = sum(job.state not in FINAL for job in self.auditor.jobs.values())
        if waiting < left:
            deadline = self.now() + STUCK_SECONDS
        unfinished = self._unfinished()
        if not unfinished:
            self.auditor.still_there()
            self.loop.stop()
        elif self.now() > deadline:
            self.breach("I10", unfinished)
        else:
            self.loop.later(LOOK_SECONDS, self._look, waiting, deadline)

    def _is_hopeless(self, job: Job) -> bool:
        """Nobody waits for a begin that is an hour away, since the clock was set back; nor for
        nodes that are not there, which was not known when the job was submitted."""
        head, held = self.leading(), job.state in (JobState.HELD, JobState.SUSPENDED)
        if head is None:
            return False
        if held and job.begins_at is not None:
            return job.begins_at > head.control.now().wall + STUCK_SECONDS / 2
        reason = head.control.reasons.get(job.id)
        return reason is not None and reason.code in ("BadTopology", "BadConstraints")

    def _unfinished(self) -> str:
        """What has not come to its end yet; "" when all has."""
        waiting = [job for job in self.auditor.jobs.values() if job.state not in FINAL]
        if waiting:
            return f"{waiting[0].id} is still {waiting[0].state}: {waiting[0].reason}"
        if self.people.waiting:
            return f"{self.people.waiting} calls have no answer"
        held = [key for key, state in self.auditor.seats.items() if state != "RELEASED"]
        if held:
            return f"{held[0]} is still held"
        for node in self.nodes.values():
            alive = [one.key for one in self.evidence.on_node(node.id)]
            if alive or node.disk.journals:
                return f"{node.id} still has {alive or list(node.disk.journals)}"
        return self.auditor.forgetting.unfinished()

    # -- heads -----------------------------------------------------------------------------------

    def start_head(self) -> None:
        head = Head(self, len(self.heads) + 1)
        self.heads.append(head)
        head.begin()

    def leading(self) -> Head | None:
        """The newest head that serves."""
        return next((head for head in reversed(self.heads) if head.serves), None)

    def head_to_dial(self) -> Head | None:
        """Who answers at the head's address: with two heads, either may."""
        serving = [head for head in self.heads if head.serves and not head.process.paused]
        if len(serving) > 1 and self.chance.random() < 0.3:
            return serving[0]
        return serving[-1] if serving else None

    def kill_head(self, process: Process | None) -> None:
        for head in self.heads:
            if head.process is process:
                head.end()

    def head_ended(self, head: Head) -> None:
        self.loop.later(self.chance.choice([0.1, 1.0, 6.0]), self.keep_a_head)

    def keep_a_head(self) -> None:
        if not any(head.process.alive for head in self.heads):
            self.start_head()

    def wake_heads(self) -> None:
        """The engine has seen something."""
        for head in self.heads:
            head.process.post(head.control.wake)

    # -- what is told ----------------------------------------------------------------------------

    def gang(self, launch: Launch) -> Gang:
        if launch.key not in self._gangs:
            self._gangs[launch.key] = Gang(self, launch)
        return self._gangs[launch.key]

    def tell(self, text: str) -> None:
        line = f"{self.now():9.3f}  {text}"
        self._digest.update(line.encode())
        self._lines.append(line)
        if self._verbose:
            print(line)

    def breach(self, rule: str, text: str) -> None:
        """The first one ends the world."""
        if self._breach is None:
            self._breach = (rule, text)
            self.tell(f"BREACH {rule}: {text}")
            self.loop.stop()

    def _uncaught(self, error: BaseException) -> None:
        where = traceback.extract_tb(error.__traceback__)[-1]
        self.breach("bug", f"{error!r} at {where.filename}:{where.lineno}")


def draw_retention(chance: Random) -> Retention:
    """In most worlds nothing is forgotten; in some what is too old, or one too many, or both."""
    seconds = chance.choice([ALWAYS_SECONDS] * 4 + [5.0, 25.0])
    return Retention(seconds=seconds, jobs=chance.choice([1000] * 4 + [1, 3]))


@contextmanager
def _silent_logs() -> Iterator[None]:
    """A thousand worlds would write a million lines."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        yield
    finally:
        structlog.configure(**before)
