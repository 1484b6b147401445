"""The live path: the real control over a memory store, on nodes that do at once what
they are told.

Virtual time: the head looks whenever something is submitted or ends, and when somebody
is due to give way. What it decides is read from its world alone.
"""

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from corral.control import Control
from corral.control.head_clocks import ServingClock
from corral.domain.attempt import Exit, Save
from corral.domain.desired_state import DesiredState, Launch
from corral.domain.engine_limit import EngineLimit
from corral.domain.ids import JobId, NodeId, QueueName, UserName, job_id
from corral.domain.job import JobSpec
from corral.domain.job_states import JobState
from corral.domain.node import Node, NodeKind
from corral.domain.observed_state import AttemptKey, NodeFacts, Phase, Progress, Seen
from corral.domain.queue_tree import QueueTree
from corral.domain.requests import SetQueues, Submit
from corral.domain.resources import Resources
from corral.replay.snapshot import Terms
from corral.schedule.decide import RESERVE_AFTER_SECONDS
from corral.schedule.quota.borrowing import changes_at
from corral.store.memory_store import MemoryStore
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
    name: str = "t"
    limit: float | None = None

    @property
    def resources(self) -> Resources:
        return Resources(gpu_millis=self.share_millis or self.gpus * 1000)


class Decided(NamedTuple):
    """`seats`: of a start, (node, GPU indices). `by`: for which row it gives way, else
    -1."""

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
    """An engine that proves nothing and need not be told: the nodes read the words
    themselves."""

    name: str = "quiet"
    cannot: Mapping[str, EngineLimit] = field(default_factory=dict)
    could_bring: Sequence[NodeKind] = ()
    restarts_in_place: bool = True
    shown_by: str = ""
    trouble: str = ""
    is_unreachable: bool = False

    def observe(self) -> Mapping[NodeId, str]:
        return {}

    def gone(self) -> Set[NodeId]:
        return frozenset()

    def says(self, key: AttemptKey) -> str:
        return ""

    def apply(self, wanted: DesiredState) -> None:
        pass


@dataclass(slots=True)
class Life:
    """One attempt: `ends_at` if it is let, with what it has to do before it goes on.
    `saved`: how often it has by itself. `is_back`: the head knows that it goes on."""

    row: int
    node: NodeId
    placed_at: float
    overhead: float
    ends_at: float
    done_before: int
    saved: int = 0
    is_back: bool = False


class EvenClock(ServingClock):
    """Goes on through the gaps between two looks: nothing happens in them."""

    def read(self, monotonic: float) -> float:
        return monotonic


class LiveHead:
    """`left`: seconds of service that each row still needs. A step takes a second."""

    def __init__(
        self, rows: Sequence[Row], nodes: Sequence[Node], terms: Terms
    ) -> None:
        self.rows, self.nodes, self.terms = rows, {one.id: one for one in nodes}, terms
        self.clock = HandClock()
        self.control = Control(store=MemoryStore(), engine=Quiet(), clock=self.clock)
        self.left = [row.seconds for row in rows]
        self.starts = [0] * len(rows)
        self.steps = [0] * len(rows)
        self.row_of: dict[JobId, int] = {}
        self.lives: dict[AttemptKey, Life] = {}
        self.seen: dict[NodeId, dict[AttemptKey, Seen]] = {one.id: {} for one in nodes}
        self.stopped: set[AttemptKey] = set()
        self.decided: list[Decided] = []

    async def play(self, tree: QueueTree) -> list[Decided]:
        await self.control.start()
        self.control._serving = EvenClock(T0)
        await self._tick()
        request = SetQueues(
            queues=tree.queues, whole=True, half_life_seconds=tree.half_life_seconds,
            min_runtime_seconds=tree.min_runtime_seconds,
        )  # fmt: skip
        await self.control.acknowledge(request, by=ALICE)
        await self._tick()
        came = 0
        while came < len(self.rows) or self.lives:
            ends = [life.ends_at for life in self.lives.values()]
            submits = [row.at for row in self.rows[came : came + 1]]
            taught = self.control.learning._lessons.due_at - T0
            due = [*self._due(), *self._patient(), self._paid_back()]
            soonest = min([*ends, *submits, *due, taught])
            now = max(soonest, self.clock.now - T0)
            await self._tell_first_steps(now)
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
        """When those are past their minimum run time who are not told yet."""
        world = self.control.world
        return [
            max(victim.due_at for victim in untold) - T0
            for one in world.reservations.values()
            if (untold := [v for v in one.victims if (v.job, v.attempt) in self.lives])
        ]

    def _patient(self) -> list[float]:
        """When those who wait have done so for long enough to have nodes kept for
        them."""
        now = self.clock.now - T0
        queued = self.control.world.in_state(JobState.QUEUED).values()
        over = [job.since - T0 + RESERVE_AFTER_SECONDS for job in queued]
        return [at for at in over if at > now]

    def _paid_back(self) -> float:
        """When others owe than do now."""
        world = self.control.world
        return changes_at(world.debts.values(), world.queues, self.clock.now) - T0

    async def _submit(self, number: int) -> None:
        row = self.rows[number]
        spec = JobSpec(
            name=f"{row.name}-{number}", run="true", nodes=row.nodes, priority=row.priority,
            resources=row.resources, queue=QueueName(row.queue),
            checkpoint=SAVING, max_duration_seconds=row.limit,
        )  # fmt: skip
        asked = Submit(specs=(spec,), key=str(number))
        request = await self.control.acknowledge(asked, by=UserName(row.user))
        self.row_of[job_id(request.sequence)] = number

    # -- the nodes -------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Until the head decides nothing more, and the nodes have nothing new to
        say."""
        for _ in range(MOST_TICKS):
            known = (len(self.decided), self.control.world.reservations.copy())
            table = self.control.learning.table
            self.control._looked_at_all = float("-inf")  # as it does each second,
            self.control._wrote_at = float("-inf")  # and each few
            await self._tick()
            is_same = known == (len(self.decided), self.control.world.reservations)
            if not self._obey() and is_same and table is self.control.learning.table:
                return
        raise AssertionError("it does not come to rest")

    async def _tell_first_steps(self, until: float) -> None:
        """The head hears at the moment when an attempt goes on from its save, and only
        takes it in: it would place nobody between two events."""
        lives = [(one.placed_at + one.overhead, key) for key, one in self.lives.items()]
        for at, key in sorted(one for one in lives if not self.lives[one[1]].is_back):
            life = self.lives[key]
            if at > until or not life.overhead:
                continue
            self.clock.now, life.is_back = T0 + at, True
            self.steps[life.row] = life.done_before + 1
            self._report(key, life.done_before + 1)
            self.control.stopped_placing = "between two events"
            self.control._looked_at_all = float("-inf")
            await self._tick()
            self.control.stopped_placing = ""

    def _report(self, key: AttemptKey, step: int) -> None:
        life = self.lives[key]
        progress = Progress(step=step, first_step=life.done_before, at=self.clock.now)
        seen = self.seen[life.node]
        seen[key] = replace(seen[key], progress=progress)

    def _save_when_due(self) -> None:
        """Each so many seconds from when it was placed."""
        now, every = self.clock.now - T0, self.terms.save_seconds
        for key, life in self.lives.items():
            saved = int((now - life.placed_at) // every)
            if saved > life.saved:
                life.saved = saved
                self._save(key, life.placed_at + saved * every)

    def _save(self, key: AttemptKey, at: float) -> None:
        life = self.lives[key]
        done = life.done_before + int(max(0.0, at - life.placed_at - life.overhead))
        step = max(done, self.steps[life.row])
        save = Save(
            job=key[0], attempt=key[1], step=step, path=SAVING.path, manifest_sha256="",
            size_bytes=1, seconds=0.0, stall_seconds=0.0, at=T0 + at,
        )  # fmt: skip
        self.steps[life.row] = step
        seen = self.seen[life.node]
        seen[key] = replace(seen[key], saves=(save,))

    async def _tick(self) -> None:
        self._save_when_due()
        for id, one in self.nodes.items():
            heard = NodeFacts(
                node=id, boot=one.boot, heard_at=self.control.serving_seconds(),
                inventory=one.inventory, seen=tuple(self.seen[id].values()),
            )  # fmt: skip
            self.control.hear(heard)
        await self.control.tick()
        self._read()

    def _obey(self) -> bool:
        """Start and stop what the newest words say, at once; whether that is anything
        new."""
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
            overhead = self.terms.restart_seconds if self.starts[row] else 0.0
            self.starts[row] += 1
            ends_at = now + overhead + self.left[row]
            self.lives[key] = Life(row, node, now, overhead, ends_at, self.steps[row])

    def _end(self, key: AttemptKey, *, code: int) -> None:
        if code:
            self._save(key, self.clock.now - T0)
            self._report(key, self.steps[self.lives[key].row])
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
    rows: Sequence[Row], nodes: Sequence[Node], tree: QueueTree, terms: Terms
) -> list[Decided]:
    return asyncio.run(LiveHead(rows, nodes, terms).play(tree))
