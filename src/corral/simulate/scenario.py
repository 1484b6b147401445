"""One simulated world from one seed: nodes, users, heads and faults, until all jobs
have ended."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from corral.control.services import ServiceTraffic
from corral.domain.ids import BootId, NodeId
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.observed_state import Seen
from corral.domain.reason_code import ReasonCode
from corral.domain.requests import Cancel, Resume, SetNode
from corral.domain.world import Changes
from corral.simulate.auditor import Auditor
from corral.simulate.database import SimulatedStore
from corral.simulate.faults import Faults
from corral.simulate.head import SimulatedHead
from corral.simulate.heads import SimulatedHeads
from corral.simulate.job_requests import draw_labels
from corral.simulate.machine import SimulatedMachine, inventory
from corral.simulate.node import SimulatedNode
from corral.simulate.node_faults import Ills
from corral.simulate.ranks import Gangs
from corral.simulate.recorded_state import Books
from corral.simulate.replica_behaviour import draw_replica, kind_of
from corral.simulate.services.gateway import SimulatedGateway, SimulatedTraffic
from corral.simulate.services.peace import ServicePeace
from corral.simulate.services.users import ServiceUsers
from corral.simulate.users import SimulatedUsers
from corral.simulate.world import Stage

# after the last fault, this long without the end of any job is starvation
STUCK_SECONDS = 400.0
LOOK_SECONDS = 2.0
# more time with faults, for replicas to fall asleep and to wake
SLEEPERS_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOutcome:
    """End of the run of a simulated world. `rule` is the invariant that was broken
    first; "" if none was broken."""

    seed: int
    rule: str
    text: str
    digest: str
    virtual_seconds: float
    jobs: int
    replicas: int
    attempts: int
    commits: int
    lines: tuple[str, ...]


def simulate(seed: int, *, verbose: bool = False) -> WorldOutcome:
    """Run the world of this seed to its end, or to the first breach of an invariant."""
    with _silent_logs():
        scene = Scene(seed, verbose=verbose)
        try:
            return scene.run()
        finally:
            scene.stage.loop.close()


class Scene:
    """All parts of one simulated world: machines, heads, users and the auditor."""

    def __init__(self, seed: int, *, verbose: bool) -> None:
        self.stage = stage = Stage(seed, verbose=verbose)
        self.nodes: dict[NodeId, SimulatedNode] = {}
        self._machines: dict[NodeId, SimulatedMachine] = {}
        self.database = SimulatedStore(
            stage, committed=self._committed, crash=self._crash_head
        )
        self.gateway = SimulatedGateway(stage)
        self.heads = SimulatedHeads(
            stage, self.database, self._machines, self._heard, self._traffic_of_head
        )
        self.books = Books(stage, self._machines, self.heads)
        self.auditor = Auditor(
            self.books, self.database.durable_jobs, self.gateway.serves
        )
        self._gangs = Gangs(stage, self.auditor.ranks_start)
        self.people = SimulatedUsers(stage, self.nodes.keys(), self.heads, self.auditor)
        unstopped = self.auditor.services.unstopped
        self.service_users = ServiceUsers(stage, self.people, self.nodes, unstopped)
        self.peace = ServicePeace(
            stage,
            self.books,
            self.people,
            self.service_users,
            self.gateway,
            unstopped,
        )
        self._replica_chance = stage.stream("replicas")
        self.ills = Ills(stage, self.nodes)
        self.faults = Faults(stage, self.nodes, self.heads, self.database)
        self._faulty_seconds = stage.chance.uniform(20.0, 45.0)
        if stage.has_sleepers:
            self._faulty_seconds += SLEEPERS_SECONDS
        self._healed_at = 0.0

    # -- what the store and the heads tell, which were there before the auditor ------------------

    def _committed(self, term: int, changes: Changes, decided_at: float) -> None:
        self._draw_replicas(changes)
        self.auditor.committed(term, changes, decided_at)

    def _draw_replicas(self, changes: Changes) -> None:
        """Draw the behaviour of each replica that this commit makes."""
        for job in changes.jobs:
            if job.spec.replica is not None and job.id not in self.books.jobs:
                life, probe = draw_replica(
                    self._replica_chance,
                    kind_of(job.spec.run),
                    is_calm=self.peace.is_calm,
                )
                self.stage.lives[job.spec.name] = life
                self.stage.probes[job.spec.name] = probe

    def _traffic_of_head(self) -> ServiceTraffic | None:
        return SimulatedTraffic(self.gateway) if self.stage.has_services else None

    def _crash_head(self) -> None:
        self.heads.here().end()

    def _heard(
        self, head: SimulatedHead, node: NodeId, boot: BootId, seen: tuple[Seen, ...]
    ) -> None:
        self.books.heard(head, node, boot, seen)
        for attempt in seen:
            if attempt.is_ready:
                self.auditor.services.heard_ready(*attempt.key)

    # -- its course ------------------------------------------------------------------------------

    def run(self) -> WorldOutcome:
        stage, requests = self.stage, self.stage.stream("labels")
        for number in range(stage.chance.choice([1, 2, 3, 3, 4, 5, 6, 8])):
            labels = draw_labels(requests) if stage.has_requests else ()
            self._add_node(NodeId(f"n{number + 1}"), labels)
        self.heads.start()
        self.people.plan(stage.chance.randint(5, 14), self._faulty_seconds)
        self.faults.plan(stage.chance.choice([0, 2, 4, 8, 14]), self._faulty_seconds)
        self.ills.plan(self._faulty_seconds)
        if stage.has_services:
            self.service_users.plan(self._faulty_seconds)
            self.gateway.plan(self._faulty_seconds)
        stage.loop.later(self._faulty_seconds, self._stop_all_faults)
        stage.loop.run_forever()
        return self._build_outcome()

    def _add_node(self, id: NodeId, labels: tuple[tuple[str, str], ...]) -> None:
        stage = self.stage
        stage.network.join(id)
        offer = inventory(stage.gpus, shares=stage.shares, labels=labels)
        self.nodes[id] = SimulatedNode(stage, id, offer, self._gangs, self.heads)
        self._machines[id] = self.nodes[id].machine

    def _build_outcome(self) -> WorldOutcome:
        rule, text = self.stage.broken or ("", "")
        return WorldOutcome(
            seed=self.stage.seed,
            rule=rule,
            text=text,
            digest=self.stage.digest(),
            virtual_seconds=self.stage.now(),
            jobs=len(self.books.jobs),
            attempts=len(self.books.attempts),
            replicas=sum(
                job.spec.replica is not None for job in self.books.jobs.values()
            ),
            commits=self.books.commits,
            lines=self.stage.last_lines(),
        )

    def _stop_all_faults(self) -> None:
        self.stage.tell("the faults are over")
        self.faults.heal_all()
        self._healed_at = self.stage.now()
        self._look(len(self.books.jobs), self.stage.now() + STUCK_SECONDS)

    def _look(self, left: int, deadline: float) -> None:
        """Check I10 repeatedly: all jobs end by the deadline, and then nothing is left
        on any node."""
        self.auditor.look(self._healed_at)
        self._ask_for_ends()
        is_in_peace = self.stage.has_services and self.peace.advance()
        unfinished_count = sum(
            not job.state.is_final for job in self.books.jobs.values()
        )
        if unfinished_count < left or is_in_peace:
            deadline = self.stage.now() + STUCK_SECONDS
        unfinished = self._unfinished()
        if not unfinished:
            self.auditor.still_there()
            self.stage.loop.stop()
        elif self.stage.now() > deadline:
            self.stage.breach("I10", unfinished)
        else:
            self.stage.loop.later(LOOK_SECONDS, self._look, unfinished_count, deadline)

    def _ask_for_ends(self) -> None:
        """Request what lets the remaining jobs end: uncordon nodes, resume suspended
        jobs, and cancel jobs that can never start."""
        for node in self.books.nodes.values():
            if node.cordoned:
                self.people.ask(SetNode(node=node.id, to="uncordon"))
        for job in self.books.jobs.values():
            if self._is_hopeless(job):
                self.people.ask(Cancel(job=job.id))
            elif job.state == JobState.SUSPENDED:
                self.people.ask(Resume(job=job.id))

    def _is_hopeless(self, job: Job) -> bool:
        """Return whether the job cannot start in reasonable time: its begin time is far
        away because the clock was set back, or it needs nodes that do not exist, which
        was not known at its submission."""
        head, is_held = (
            self.heads.leading(),
            job.state in (JobState.HELD, JobState.SUSPENDED),
        )
        if head is None:
            return False
        if is_held and job.begins_at is not None:
            return job.begins_at > head.control.now().wall + STUCK_SECONDS / 2
        reason = head.control.reasons.get(job.id)
        return reason is not None and reason.code in (
            ReasonCode.BAD_TOPOLOGY,
            ReasonCode.BAD_CONSTRAINTS,
        )

    def _unfinished(self) -> str:
        """Return a text about the first thing that has not ended; "" if all has."""
        services_text = self.peace.unfinished() if self.stage.has_services else ""
        if services_text:
            return services_text
        unfinished_jobs = [
            job for job in self.books.jobs.values() if not job.state.is_final
        ]
        if unfinished_jobs:
            return (
                f"{unfinished_jobs[0].id} is still {unfinished_jobs[0].state}: "
                f"{unfinished_jobs[0].reason}"
            )
        if self.people.waiting:
            return f"{self.people.waiting} calls have no answer"
        held_seats = [
            key for key, state in self.books.seats.items() if state != "RELEASED"
        ]
        if held_seats:
            return f"{held_seats[0]} is still held"
        for id, machine in self._machines.items():
            alive = [
                attempt_alive.key for attempt_alive in self.stage.evidence.on_node(id)
            ]
            if alive or machine.disk.journals:
                return f"{id} still has {alive or list(machine.disk.journals)}"
        return self.auditor.unfinished()


@contextmanager
def _silent_logs() -> Iterator[None]:
    """Silence the logs within the context, because a thousand worlds would write a
    million lines."""
    corral = logging.getLogger("corral")
    previous_level = corral.level
    corral.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        corral.setLevel(previous_level)
