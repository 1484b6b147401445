"""The live path: the real control over a memory store, on nodes that do at once what they are told.

Virtual time: the head looks whenever something is submitted or ends, and when somebody is due to
give way. What it decides is read from its world alone.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from corral.control import Control
from corral.control.learning import Learning
from corral.domain.attempt import Exit
from corral.domain.facts import AttemptKey, NodeFacts, Phase, Seen
from corral.domain.ids import JobId, NodeId, QueueName, UserName, job_id
from corral.domain.job import JobSpec
from corral.domain.moves import JobState
from corral.domain.node import Node
from corral.domain.queue import QueueTree
from corral.domain.resources import Resources
from corral.domain.wanted import Launch, Wanted
from corral.domain.wishes import SetQueues, Submit
from corral.schedule.decide import PATIENCE_SECONDS
from corral.store.memory import MemoryStore
from tests.worlds import ALICE, SAVING

T0 = 1_000_000.0
MOST_TICKS = 40  # at one moment


class Row(NamedTuple):
    """A job of the trace: seconds are whole."""

    at: float
    seconds: float
    nodes: int
    gpus: int
    queue: str
    user: str
    priority: int = 0
    share_millis: int = 0  # of one GPU, in place of whole ones

    @property
    def resources(self) -> Resources:
        return Resources(gpu_millis=self.share_millis or self.gpus * 1000)


class Decided(NamedTuple):
    """`seats`: of a start, (node, GPU indices). `by`: for which row it gives way, else -1."""

    at: float
    kind: str
    row: int
    seats: tuple[tuple[str, tuple[int, ...]], ...] = ()
    by: int = -1


class HandClock:
    def __init__(self) -> None:
        self.now = T0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def fresh_id(self) -> str:
        return "0" * 32


@dataclass
class Quiet:
    """An engine that proves nothing and need not be told: the nodes read the words themselves."""

    name: str = "quiet"
    cannot: Mapping[str, str] = field(default_factory=dict)

    def observe(self) -> Mapping[NodeId, str]:
        return {}

    def apply(self, wanted: Wanted) -> None:
        pass


@dataclass(slots=True)
class Life:
    """One attempt: `ends_at` if it is let, with what it has to do before it goes on."""

    row: int
    placed_at: float
    overhead: float
    ends_at: float


class LearnsNothing(Learning):
    """Both paths order by age: these nodes do not tell what their attempts have saved."""

    @property
    def table(self) -> None:
        return None


class LiveHead:
    """`left`: seconds of service that each row still needs."""

    def __init__(self, rows: Sequence[Row], nodes: Sequence[Node], restart_seconds: float) -> None:
        self.rows, self.nodes, self.restart = rows, {one.id: one for one in nodes}, restart_seconds
        self.clock = HandClock()
        self.control = Control(store=MemoryStore(), engine=Quiet(), clock=self.clock)
        self.left = [row.seconds for row in rows]
        self.starts = [0] * len(rows)
        self.row_of: dict[JobId, int] = {}
        self.lives: dict[AttemptKey, Life] = {}
        self.seen: dict[NodeId, dict[AttemptKey, Seen]] = {one.id: {} for one in nodes}
        self.stopped: set[AttemptKey] = set()
        self.decided: list[Decided] = []

    async def play(self, tree: QueueTree) -> list[Decided]:
        await self.control.start()
        self.control.learning = LearnsNothing((), self.control.world, self.control.now())
        await self._tick()
        wish = SetQueues(
            queues=tree.queues, whole=True, half_life_seconds=tree.half_life_seconds,
            guard_seconds=tree.guard_seconds,
        )  # fmt: skip
        await self.control.acknowledge(wish, by=ALICE)
        await self._tick()
        came = 0
        while came < len(self.rows) or self.lives:
            ends = [life.ends_at for life in self.lives.values()]
            submits = [row.at for row in self.rows[came : came + 1]]
            now = min([*ends, *submits, *self._due(), *self._patient()])
            self.clock.now = T0 + now
            for key, life in list(self.lives.items()):
                if life.ends_at <= now:
                    self._end(key, code=0)
            while came < len(self.rows) and self.rows[came].at <= now:
                await self._submit(came)
                came += 1
            await self._settle()
        return self.decided

    def _due(self) -> list[float]:
        """When those are past their guard who are not told yet."""
        world = self.control.world
        return [
            max(victim.due_at for victim in untold) - T0
            for one in world.reservations.values()
            if (untold := [v for v in one.victims if (v.job, v.attempt) in self.lives])
        ]

    def _patient(self) -> list[float]:
        """When those who wait have done so for long enough to have nodes kept for them."""
        now = self.clock.now - T0
        queued = self.control.world.in_state(JobState.QUEUED).values()
        over = [job.since - T0 + PATIENCE_SECONDS for job in queued]
        return [at for at in over if at > now]

    async def _submit(self, number: int) -> None:
        row = self.rows[number]
        spec = JobSpec(
            name=f"t{number}", run="true", nodes=row.nodes, priority=row.priority,
            resources=row.resources, queue=QueueName(row.queue),
            checkpoint=SAVING,
        )  # fmt: skip
        asked = Submit(specs=(spec,), key=str(number))
        wish = await self.control.acknowledge(asked, by=UserName(row.user))
        self.row_of[job_id(wish.sequence)] = number

    # -- the nodes -------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Until the head decides nothing more, and the nodes have nothing new to say."""
        for _ in range(MOST_TICKS):
            known = (len(self.decided), self.control.world.reservations.copy())
            self.control._looked_at_all = float("-inf")  # as it does each second
            await self._tick()
            is_same = known == (len(self.decided), self.control.world.reservations)
            if not self._obey() and is_same:
                return
        raise AssertionError("it does not come to rest")

    async def _tick(self) -> None:
        for id, one in self.nodes.items():
            heard = NodeFacts(
                node=id, boot=one.boot, heard_at=self.control.serving_seconds(),
                inventory=one.inventory, seen=tuple(self.seen[id].values()),
            )  # fmt: skip
            self.control.hear(heard)
        await self.control.tick()
        self._read()

    def _obey(self) -> bool:
        """Start and stop what the newest words say, at once; whether that is anything new."""
        is_new = False
        for id, seen in self.seen.items():
            word = self.control.wanted(id)
            for key in word.settled:
                is_new |= seen.pop(key, None) is not None
            for launch in (one for one in word.run if one.key not in seen):
                self._begin(launch, id)
                is_new = True
            for stop in word.stop:
                if stop.key in self.lives:
                    self._end(stop.key, code=75)
                    is_new = True
        return is_new

    def _begin(self, launch: Launch, node: NodeId) -> None:
        now, key = self.clock.now - T0, launch.key
        self.seen[node][key] = Seen(key=key, phase=Phase.UP, started_at=self.clock.now)
        if key not in self.lives:
            row = self.row_of[key[0]]
            overhead = self.restart if self.starts[row] else 0.0
            self.starts[row] += 1
            self.lives[key] = Life(row, now, overhead, now + overhead + self.left[row])

    def _end(self, key: AttemptKey, *, code: int) -> None:
        life, now = self.lives.pop(key), self.clock.now - T0
        self.left[life.row] -= max(0.0, now - life.placed_at - life.overhead)
        for seen in self.seen.values():
            if key in seen:
                exits = ((0, Exit(code=code, at=self.clock.now)),)
                seen[key] = replace(seen[key], phase=Phase.ENDED, exits=exits)

    # -- what it has decided ---------------------------------------------------------------------

    def _read(self) -> None:
        now = self.clock.now - T0
        for attempt in self.control.world.attempts.values():
            row, key = self.row_of[attempt.job], (attempt.job, attempt.number)
            if attempt.placed_at == self.clock.now and key not in self.lives:
                seats = tuple(sorted((seat.node, seat.gpus) for seat in attempt.seats))
                start = Decided(now, "started", row, seats)
                if start not in self.decided:
                    self.decided.append(start)
            if attempt.gave_way_to is not None and key not in self.stopped:
                self.stopped.add(key)
                by = self.row_of[attempt.gave_way_to]
                self.decided.append(Decided(now, "preempted", row, by=by))


def decided_live(
    rows: Sequence[Row], nodes: Sequence[Node], tree: QueueTree, *, restart_seconds: float
) -> list[Decided]:
    return asyncio.run(LiveHead(rows, nodes, restart_seconds).play(tree))
