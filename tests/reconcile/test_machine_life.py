"""Reconcile against a plain model of nodes and ranks, in any order of requests, facts and
faults.

The model keeps what is physically true: which parts of which attempts live on which
node, how they ended and by whose fault. It knows no rule of reconcile and says what
holds whatever was decided.
"""

from collections import defaultdict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from corral.domain.attempt import Exit, Save, SeatState
from corral.domain.desired_state import Launch, Version
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId
from corral.domain.job import CheckpointRule, Disconnect, Job, JobSpec, Retry
from corral.domain.job_states import FINAL, JobState
from corral.domain.observed_state import (
    AttemptKey,
    Facts,
    NodeFacts,
    Phase,
    Progress,
    Seen,
)
from corral.domain.requests import Asked, Cancel, Resume, SetNode, Submit, Suspend
from corral.domain.resources import Resources
from corral.domain.world import World
from corral.reconcile import Now, reconcile, wanted_of
from corral.reconcile.apply_requests import ids_of
from corral.store.memory_store import MemoryStore
from tests.worlds import ALICE, inventory

T = TypeVar("T")
NODES = tuple(NodeId(f"n{number}") for number in (1, 2, 3))
GPUS = 2


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """The memory store never waits: its coroutines end at the first step."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("the memory store waited for something")


@dataclass
class Part:
    """One attempt on one node, as it truly is."""

    launch: Launch
    boot: str
    end: Exit | None = None
    stopping: bool = False
    step: int = 0
    saves: list[Save] = field(default_factory=list)


@dataclass
class Machine:
    """A node: what lives on it, whether its words arrive, and its newest boot."""

    boots: int = 1
    power: bool = True
    heard: bool = True
    parts: dict[AttemptKey, Part] = field(default_factory=dict)
    refused: set[AttemptKey] = field(default_factory=set)

    def seen(self) -> tuple[Seen, ...]:
        told = [
            Seen(key=key, phase=Phase.REFUSED, trouble="not here")
            for key in self.refused
        ]
        for key, part in self.parts.items():
            gone = part.boot != str(self.boots) and part.end is None
            over = gone or part.end is not None
            told.append(
                Seen(
                    key=key,
                    phase=Phase.ENDED
                    if over
                    else Phase.STOPPING
                    if part.stopping
                    else Phase.UP,
                    exits=((part.launch.first_rank, part.end),) if part.end else (),
                    progress=Progress(step=part.step),
                    saves=tuple(part.saves),
                    trouble="the node restarted" if gone else "",
                )
            )
        return tuple(told)


class Life(RuleBasedStateMachine):
    """Each rule is one thing that happens; the head ticks in its own rule, and
    often."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.world: World = run_now(self.store.lead())
        self.machines = {node: Machine() for node in NODES}
        self.facts = Facts()
        self.serving = 0.0
        self.wall = 1_000_000.0
        self.ended: dict[JobId, Job] = {}
        self.cancelled: set[JobId] = set()
        self.user_faults: dict[JobId, int] = defaultdict(int)
        self.infra_faults: dict[JobId, int] = defaultdict(int)
        self.version = 0
        self.beat()
        self.tick()

    # -- what people do --------------------------------------------------------------------------

    @rule(
        target=jobs,
        nodes=st.integers(1, 3),
        gpus=st.integers(0, GPUS),
        saves=st.booleans(),
        wait=st.booleans(),
        user=st.integers(0, 2),
        priority=st.integers(-1, 1),
    )
    def submit(
        self, nodes: int, gpus: int, saves: bool, wait: bool, user: int, priority: int
    ) -> JobId:
        spec = JobSpec(
            name="train",
            run="x",
            nodes=nodes,
            resources=Resources(gpu_millis=1000 * gpus, cpu_millis=1000),
            checkpoint=CheckpointRule(path="/shared/c") if saves else None,
            disconnect=Disconnect.WAIT if wait else Disconnect.REPLACE,
            retry=Retry(infra=1000, user=user),
            priority=priority,
            grace_seconds=1.0,
        )
        request = run_now(
            self.store.add_request(
                Submit(specs=(spec,), key=""), by=ALICE, at=self.wall
            )
        )
        return ids_of(request)[0]

    @rule(job=jobs, what=st.sampled_from([Cancel, Suspend, Resume]))
    def ask(
        self, job: JobId, what: type[Cancel] | type[Suspend] | type[Resume]
    ) -> None:
        self.request(what(job=job))
        self.tick()
        if what is Cancel:
            self.cancelled.add(job)

    @rule(
        node=st.sampled_from(NODES), to=st.sampled_from(["cordon", "drain", "uncordon"])
    )
    def tend(self, node: NodeId, to: str) -> None:
        self.request(SetNode(node=node, to=to))  # type: ignore[arg-type]

    def request(self, asked: Asked) -> None:
        run_now(self.store.add_request(asked, by=ALICE, at=self.wall))

    # -- what happens on nodes -------------------------------------------------------------------

    @rule(node=st.sampled_from(NODES), steps=st.integers(1, 5), saved=st.booleans())
    def step(self, node: NodeId, steps: int, saved: bool) -> None:
        for key, part in self.alive(node):
            part.step += steps
            if saved and part.launch.checkpoint and part.launch.node_rank == 0:
                part.saves.append(save_of(key, part.step))

    @rule(node=st.sampled_from(NODES), code=st.sampled_from([0, 0, 1, 9]))
    def end(self, node: NodeId, code: int) -> None:
        for key, part in self.alive(node)[:1]:
            part.end = Exit(code=code, at=self.wall)
            self.user_faults[key[0]] += code != 0

    @rule(node=st.sampled_from(NODES), proven=st.booleans())
    def lose(self, node: NodeId, proven: bool) -> None:
        """The power goes, and perhaps the engine knows."""
        machine = self.machines[node]
        self.hurt(node)
        machine.power = False
        if proven:
            self.facts.proofs[node] = "its power is gone"

    @rule(node=st.sampled_from(NODES))
    def come_back(self, node: NodeId) -> None:
        machine = self.machines[node]
        if not machine.power:
            machine.power, machine.boots = True, machine.boots + 1
            self.facts.proofs.pop(node, None)

    @rule(node=st.sampled_from(NODES))
    def cut_off(self, node: NodeId) -> None:
        self.machines[node].heard = False

    @rule(node=st.sampled_from(NODES))
    def reconnect(self, node: NodeId) -> None:
        self.machines[node].heard = True

    # -- what the head does ----------------------------------------------------------------------

    @rule()
    def beat(self) -> None:
        """Agents say what they see, and obey what they are told in answer."""
        for node, machine in self.machines.items():
            if machine.power and machine.heard:
                self.facts.nodes[node] = NodeFacts(
                    node=node,
                    boot=BootId(str(machine.boots)),
                    heard_at=self.serving,
                    inventory=inventory(GPUS),
                    seen=machine.seen(),
                )
                self.obey(node)

    @rule(times=st.integers(1, 3))
    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.pass_seconds(0.3)
            now = Now(wall=self.wall, serving=self.serving)
            requests = run_now(self.store.requests_after(self.world.granted))
            outcome = reconcile(self.world, self.facts, requests, now)
            assert not outcome.bugs
            run_now(self.store.commit(self.world.term, outcome.changes))
            self.world.apply(outcome.changes)
            self.never_changed(outcome.changes.jobs)

    @rule(seconds=st.sampled_from([1.0, 4.0, 12.0]))
    def pass_seconds(self, seconds: float) -> None:
        self.serving += seconds
        self.wall += seconds

    @rule(step=st.sampled_from([-86_400.0, 86_400.0]))
    def set_clock(self, step: float) -> None:
        self.wall += step

    @rule()
    def restart(self) -> None:
        """What was in memory is gone; what was committed is not."""
        before = self.world
        self.world = run_now(self.store.lead())
        self.facts = Facts(proofs=dict(self.facts.proofs))
        self.serving = 0.0
        assert (self.world.jobs, self.world.ended) == (before.jobs, before.ended)
        assert self.world.allocations == before.allocations

    # -- how nodes obey --------------------------------------------------------------------------

    def obey(self, node: NodeId) -> None:
        machine = self.machines[node]
        held = [one for one in self.world.allocations.values() if one.seat.node == node]
        self.version += 1
        version = Version(term=self.world.term, counter=self.version)
        wanted = wanted_of(self.world, node, held, self.facts.nodes[node], version)
        if wanted.boot not in ("", str(machine.boots)):
            return
        for launch in wanted.run:
            if launch.key not in machine.parts and launch.key not in machine.refused:
                self.starts(node, launch)
        for stop in wanted.stop:
            part = machine.parts.get(stop.key)
            if part is None:
                machine.refused.add(stop.key)
            elif part.end is None and part.boot == str(machine.boots):
                part.stopping = True
                part.end = Exit(signal=15, at=self.wall)
        for key in wanted.settled:
            machine.refused.discard(key)
            part = machine.parts.get(key)
            if part is not None and (
                part.end is not None or part.boot != str(machine.boots)
            ):
                del machine.parts[key]

    def starts(self, node: NodeId, launch: Launch) -> None:
        job, attempt = launch.key
        for other, machine in self.machines.items():
            for key, part in self.alive(other):
                if key[0] == job and key[1] != attempt:
                    waits = (
                        part.launch.checkpoint is None
                        or self.spec(job).disconnect == "wait"
                    )
                    cut = self.world.allocations.get((*key, other))
                    fenced = cut is not None and cut.state != SeatState.HELD
                    assert fenced, f"{launch.key} starts while {key} lives on {other}"
                    assert not (waits and self.spec(job).when_silent == "wait"), (
                        "who waits, waits"
                    )
            del machine
        used = sum(part.launch.seat.gpu_millis for _, part in self.alive(node))
        assert used + launch.seat.gpu_millis <= GPUS * 1000, (
            f"GPUs of {node} are used twice"
        )
        known = {(save.attempt, save.step) for save in self.world.saves.get(job, ())}
        assert {(save.attempt, save.step) for save in launch.resume} <= known
        machine = self.machines[node]
        machine.parts[launch.key] = Part(launch=launch, boot=str(machine.boots))

    def spec(self, job: JobId) -> JobSpec:
        return self.world.jobs[job].spec

    def alive(self, node: NodeId) -> list[tuple[AttemptKey, Part]]:
        machine = self.machines[node]
        if not machine.power:
            return []
        boot = str(machine.boots)
        return [
            (key, part)
            for key, part in machine.parts.items()
            if part.end is None and part.boot == boot
        ]

    def hurt(self, node: NodeId) -> None:
        for one in self.world.allocations.values():
            self.infra_faults[one.job] += one.seat.node == node

    # -- what must hold --------------------------------------------------------------------------

    def never_changed(self, jobs: tuple[Job, ...]) -> None:
        for job in jobs:
            assert self.ended.setdefault(job.id, job) == job or job.id not in self.ended
            if not job.is_final:
                self.ended.pop(job.id, None)

    @invariant()
    def an_end_is_for_ever(self) -> None:
        for id, state in self.world.ended.items():
            stored = run_now(self.store.job(id))
            assert stored is not None
            assert stored.state == state
            assert state in FINAL

    @invariant()
    def a_cancelled_job_only_stops(self) -> None:
        for id in self.cancelled & self.world.jobs.keys():
            job = self.world.jobs[id]
            assert (job.state, job.why) == (JobState.STOPPING, "cancel"), job

    @invariant()
    def a_gang_is_whole_and_its_seats_are_counted(self) -> None:
        used: dict[tuple[NodeId, int], int] = defaultdict(int)
        for one in self.world.allocations.values():
            for index in one.seat.gpus:
                used[one.seat.node, index] += 1000
        assert max(used.values(), default=0) <= 1000
        for attempt in self.world.attempts.values():
            assert len(attempt.seats) == self.world.jobs[attempt.job].spec.nodes

    @invariant()
    def nobody_pays_for_what_did_not_happen(self) -> None:
        for id, job in self.world.jobs.items():
            assert job.user_retries <= min(self.user_faults[id], job.spec.retry.user)

    @invariant()
    def a_seat_is_let_go_only_when_nothing_lives_there(self) -> None:
        for node in NODES:
            for key, _ in self.alive(node):
                held = self.world.allocations.get((*key, node))
                assert held is not None, f"{key} lives on {node} without a seat"

    def teardown(self) -> None:
        """The faults end; then everything comes to its end, and nothing is left."""
        for node, machine in self.machines.items():
            machine.heard = True
            self.come_back(node)
            self.request(SetNode(node=node, to="uncordon"))
        for _ in range(200):
            self.beat()
            self.tick()
            for id, job in self.world.jobs.items():
                if job.state == JobState.SUSPENDED:
                    self.request(Resume(job=id))
            for node in NODES:
                for _, part in self.alive(node):
                    part.end = Exit(code=0, at=self.wall)
            if not (self.world.jobs or self.world.allocations):
                break
        assert not self.world.jobs, next(iter(self.world.jobs.values()))
        assert not self.world.allocations


def save_of(key: AttemptKey, step: int) -> Save:
    return Save(
        job=key[0], attempt=AttemptNumber(key[1]), step=step, path=f"/shared/c/{key[1]}/{step}",
        manifest_sha256="0" * 64, size_bytes=1, seconds=0.1, stall_seconds=0.0, at=0.0,
    )  # fmt: skip


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
