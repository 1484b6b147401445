"""The draft: changes of one pass, which overlay the recorded world. The world itself
does not change before the commit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from corral.domain.attempt import Allocation, Attempt, Save, SeatState
from corral.domain.diagnosis import RankEnds
from corral.domain.event_kind import KIND_OF_MOVE, EventKind
from corral.domain.ids import (
    AttemptNumber,
    JobId,
    NodeId,
    QueueName,
    Sequence,
    ServiceName,
    UserName,
)
from corral.domain.job import Job
from corral.domain.job_states import JobEvent, JobState
from corral.domain.keep_rule import SaveKey, save_key
from corral.domain.ledger import UsageRecord
from corral.domain.node import Node
from corral.domain.node_signal import Signal
from corral.domain.observed_state import AttemptKey, Facts
from corral.domain.queue_tree import QueueTree
from corral.domain.reason_code import ReasonCode
from corral.domain.receipt import Receipt
from corral.domain.service import Service
from corral.domain.usage import BudgetSpent, Debt, QueueUsage, Reservation
from corral.domain.world import AllocationKey, Changes, Event, World

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """The present moment on two clocks: `wall` is written to records, and `serving`
    (the head's own clock) decides about time limits."""

    wall: float
    serving: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """State of one job in the draft before a step of a pass. If the step fails, the
    draft returns to this state."""

    id: JobId
    job: Job | None
    attempt: Attempt | None
    replaced: int
    # of its newest attempt; None: not in the draft
    seats: dict[AllocationKey, Allocation | None]
    saves: int
    receipts: int
    events: int


@dataclass(slots=True)
class Draft:
    """The changes of one pass that are not committed yet: new rows that replace those
    of the world. Reads return the new rows; `changes()` returns what will be
    committed."""

    world: World
    facts: Facts
    now: Now
    jobs: dict[JobId, Job] = field(default_factory=dict)
    attempts: dict[JobId, Attempt] = field(default_factory=dict)
    # ended and followed by another in here
    replaced: list[Attempt] = field(default_factory=list)
    allocations: dict[AllocationKey, Allocation] = field(default_factory=dict)
    nodes: dict[NodeId, Node] = field(default_factory=dict)
    saves: list[Save] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    queues: QueueTree | None = None
    uses: dict[tuple[QueueName, UserName], QueueUsage] = field(default_factory=dict)
    spent: dict[QueueName, BudgetSpent] = field(default_factory=dict)
    debts: dict[QueueName, Debt] = field(default_factory=dict)
    reservations: dict[JobId, Reservation] = field(default_factory=dict)
    services: dict[ServiceName, Service] = field(default_factory=dict)
    accounts: list[UsageRecord] = field(default_factory=list)
    granted: Sequence | None = None
    forgotten: list[JobId] = field(default_factory=list)
    removed: set[NodeId] = field(default_factory=set)
    frozen: set[NodeId] = field(default_factory=set)
    # what is done for a node's health waits for no pass of the scheduler
    is_urgent: bool = False
    trusts_health: bool = True  # what nodes notice of themselves explains ends
    may_place: bool = True  # False: placement as a whole is stopped
    # new in this look
    noticed: dict[NodeId, tuple[Signal, ...]] = field(default_factory=dict)
    # Logs to read off the event loop.
    unread: dict[AttemptKey, RankEnds] = field(default_factory=dict)
    bugs: list[tuple[JobId, Exception]] = field(default_factory=list)

    def job(self, id: JobId) -> Job | None:
        return self.jobs.get(id) or self.world.jobs.get(id)

    def attempt(self, id: JobId) -> Attempt | None:
        return self.attempts.get(id) or self.world.attempts.get(id)

    def node(self, id: NodeId) -> Node | None:
        if id in self.removed:
            return None
        return self.nodes.get(id) or self.world.nodes.get(id)

    def remove(self, node: NodeId) -> None:
        """Remove a node from the cluster. The node must hold nothing."""
        self.nodes.pop(node, None)
        self.removed.add(node)

    def service(self, name: ServiceName) -> Service | None:
        return self.services.get(name) or self.world.services.get(name)

    def all_services(self) -> list[Service]:
        """Return the services that are not stopped, by name."""
        if not self.services and not self.world.services:
            return []
        services = {**self.world.services, **self.services}
        return [services[name] for name in sorted(services)]

    def put_service(self, service: Service) -> None:
        """Put the row of a service. A row that is as recorded is not written again."""
        if service == self.world.services.get(service.name):
            self.services.pop(service.name, None)
        else:
            self.services[service.name] = service

    def state_of(self, id: JobId) -> JobState | None:
        job = self.job(id)
        return job.state if job is not None else self.world.ended.get(id)

    def all_jobs(self) -> Iterator[Job]:
        yield from (self.jobs.get(id, job) for id, job in self.world.jobs.items())
        yield from (job for id, job in self.jobs.items() if id not in self.world.jobs)

    def in_states(self, *states: JobState) -> Iterator[Job]:
        """Yield the unfinished jobs in any of these states, without a scan of all jobs."""
        for state in states:
            yield from (
                job
                for id, job in self.world.in_state(state).items()
                if id not in self.jobs
            )
        yield from (job for job in self.jobs.values() if job.state in states)

    def by_id(self, *states: JobState) -> dict[JobId, Job]:
        """Return the unfinished jobs in any of these states, by id."""
        jobs_by_job: dict[JobId, Job] = {}
        for state in states:
            jobs_by_job.update(self.world.in_state(state))
        for id, job in self.jobs.items():
            if job.state in states:
                jobs_by_job[id] = job
            else:
                jobs_by_job.pop(id, None)
        return jobs_by_job

    def with_deadline(self) -> Iterator[Job]:
        """Yield the unfinished jobs that have a `start_by`, without a scan of all jobs."""
        yield from (
            self.jobs.get(id, job) for id, job in self.world.with_deadline().items()
        )
        new_jobs = (job for id, job in self.jobs.items() if id not in self.world.jobs)
        yield from (job for job in new_jobs if job.spec.start_by is not None)

    def all_nodes(self) -> Mapping[NodeId, Node]:
        """Return all nodes. If no node has changed, these are the world's own nodes,
        because a copy costs time in proportion to the cluster's size."""
        if not self.nodes and not self.removed:
            return self.world.nodes
        nodes_by_node = {**self.world.nodes, **self.nodes}
        return {
            id: node for id, node in nodes_by_node.items() if id not in self.removed
        }

    def use(self, leaf: tuple[QueueName, UserName]) -> QueueUsage | None:
        return self.uses.get(leaf) or self.world.uses.get(leaf)

    def debts_now(self) -> Mapping[QueueName, Debt]:
        return {**self.world.debts, **self.debts} if self.debts else self.world.debts

    @property
    def tree(self) -> QueueTree:
        return self.queues or self.world.queues

    def held(self) -> Iterator[Allocation]:
        """Yield all allocations that are not released."""
        merged = {**self.world.allocations, **self.allocations}
        return (
            allocation
            for allocation in merged.values()
            if allocation.state != SeatState.RELEASED
        )

    def seats_of(self, attempt: Attempt) -> list[Allocation]:
        """Return the unreleased allocations of the attempt, in the order of its seats."""
        keys = [(attempt.job, attempt.number, seat.node) for seat in attempt.seats]
        rows = [self.allocation(key) for key in keys]
        return [
            row for row in rows if row is not None and row.state != SeatState.RELEASED
        ]

    def allocation(self, key: AllocationKey) -> Allocation | None:
        return self.allocations.get(key) or self.world.allocations.get(key)

    def saves_of(self, id: JobId) -> tuple[Save, ...]:
        """Return the resumable saves of the job, oldest first, including those of this
        draft."""
        recorded = self.world.saves.get(id, ())
        if not recorded and not self.saves:
            return ()
        saves_by_attempt = {(save.attempt, save.step): save for save in recorded}
        for save in self.saves:
            if save.job == id:
                saves_by_attempt[save.attempt, save.step] = save
        good = (save for save in saves_by_attempt.values() if save.is_usable)
        return tuple(sorted(good, key=lambda save: (save.step, save.attempt)))

    def retired_of(self, id: JobId) -> frozenset[SaveKey]:
        """Return the saves of the job that are not used any more though they verify,
        including those of this draft."""
        drafted = {
            save_key(save)
            for save in self.saves
            if save.job == id and save.retired is not None
        }
        return self.world.retired.get(id, frozenset()) | drafted

    def mark(self, id: JobId) -> Mark:
        attempt = self.attempt(id)
        keys = (
            [(id, attempt.number, seat.node) for seat in attempt.seats]
            if attempt
            else []
        )
        return Mark(
            id=id,
            job=self.jobs.get(id),
            attempt=self.attempts.get(id),
            replaced=len(self.replaced),
            seats={key: self.allocations.get(key) for key in keys},
            saves=len(self.saves),
            receipts=len(self.receipts),
            events=len(self.events),
        )

    def go_back(self, mark: Mark) -> None:
        """Drop the changes that one step on one job has made since the mark."""
        self.restore_job(mark.id, mark.job)
        if (begun := self.attempts.get(mark.id)) is not None:
            for seat in begun.seats:
                key = (mark.id, begun.number, seat.node)
                if key not in mark.seats:
                    self.allocations.pop(key, None)
        _restore_row(self.attempts, mark.id, mark.attempt)
        for key, row in mark.seats.items():
            _restore_row(self.allocations, key, row)
        del (
            self.saves[mark.saves :],
            self.receipts[mark.receipts :],
            self.events[mark.events :],
        )
        del self.replaced[mark.replaced :]

    def restore_job(self, id: JobId, job: Job | None) -> None:
        """Put back the row of a job as it was in this draft; None: it was not."""
        _restore_row(self.jobs, id, job)

    def put(self, job: Job) -> Job:
        self.jobs[job.id] = job
        return job

    def put_attempt(self, attempt: Attempt) -> Attempt:
        previous_attempt = self.attempts.get(attempt.job)
        if previous_attempt is not None and previous_attempt.number != attempt.number:
            self.replaced.append(previous_attempt)
        self.attempts[attempt.job] = attempt
        return attempt

    def put_ended(self, attempt: Attempt) -> None:
        """Put another row of an attempt that was followed by a newer one."""
        self.replaced.append(attempt)

    def seat_to(self, allocation: Allocation, state: SeatState) -> None:
        """Set the state of an allocation. A released allocation stays released, so that
        its resources are returned only once."""
        current = self.allocations.get(allocation.key, allocation)
        if current.state not in (state, SeatState.RELEASED):
            is_gone = state in (SeatState.UNREACHABLE, SeatState.RELEASED)
            charged = current.charged or is_gone
            moved = replace(current, state=state, since=self.now.wall, charged=charged)
            self.allocations[allocation.key] = moved

    def move(
        self,
        job: Job,
        event: JobEvent,
        *,
        reason: str = "",
        code: ReasonCode = ReasonCode.NONE,
        at_node: NodeId | None = None,
        **also: Any,
    ) -> Job:
        """Move the job by the event, with the changes in `also`, record the event, and
        return the job.

        A move without effect changes and records nothing. `at_node`: also add the event
        to the history of that node.
        """
        moved = job.moved(event, self.now.wall, reason=reason, code=code, **also)
        if moved is job:
            return job
        text = f"{job.spec.name} is {moved.state}{': ' if reason else ''}{reason}"
        self.tell(
            KIND_OF_MOVE[event],
            text,
            job=job.id,
            node=at_node,
            attempt=moved.attempt or None,
        )
        return self.put(moved)

    def quarantine(self, job: Job, error: Exception) -> None:
        """Record a bug of Corral that was met while deciding on this job. If the job
        waits, it becomes HELD."""
        self.bugs.append((job.id, error))
        sentence = f"a bug in Corral stopped the decision on this job: {error!r}"
        self.move(
            job, JobEvent.QUARANTINED, reason=sentence, code=ReasonCode.QUARANTINED
        )

    def tell(
        self,
        kind: EventKind,
        text: str,
        *,
        job: JobId | None = None,
        node: NodeId | None = None,
        attempt: AttemptNumber | None = None,
    ) -> None:
        self.events.append(
            Event(
                at=self.now.wall,
                kind=kind,
                text=text,
                job=job,
                node=node,
                attempt=attempt,
            )
        )

    def changes(self) -> Changes:
        return Changes(
            jobs=tuple(self.jobs.values()),
            attempts=(*self.replaced, *self.attempts.values()),
            allocations=tuple(self.allocations.values()),
            nodes=tuple(self.nodes.values()),
            saves=tuple(self.saves),
            receipts=tuple(self.receipts),
            events=tuple(self.events),
            queues=self.queues,
            uses=tuple(self.uses.values()),
            spent=tuple(self.spent.values()),
            debts=tuple(self.debts.values()),
            reservations=tuple(self.reservations.values()),
            services=tuple(self.services.values()),
            accounts=tuple(self.accounts),
            granted=self.granted,
            forgotten=tuple(self.forgotten),
            removed=tuple(sorted(self.removed)),
        )


def _restore_row(rows: dict[K, V], key: K, row: V | None) -> None:
    if row is None:
        rows.pop(key, None)
    else:
        rows[key] = row
