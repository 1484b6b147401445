"""The world: the head's copy of the recorded state in memory. It is a cache and is
discarded after a failed commit."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import TypeVar

from corral.domain.attempt import Allocation, Attempt, Save, Seat, SeatState
from corral.domain.event_kind import EventKind
from corral.domain.gateway_counts import CountKey, GatewayCount, ProcessId
from corral.domain.ids import (
    AttemptNumber,
    ClusterId,
    JobId,
    NodeId,
    QueueName,
    Sequence,
    ServiceName,
    UserName,
    sequence_of,
)
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.keep_rule import SaveKey, save_key
from corral.domain.ledger import UsageRecord
from corral.domain.node import Node
from corral.domain.queue_tree import QueueTree
from corral.domain.receipt import Receipt
from corral.domain.relocation import of_last_day
from corral.domain.service import Service, ServiceState
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.usage import BudgetSpent, Debt, QueueUsage, Reservation

Name = TypeVar("Name", bound=str)
AllocationKey = tuple[JobId, AttemptNumber, NodeId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, for people: one line of text, with its machine-readable
    kind and data."""

    at: float
    kind: EventKind
    text: str
    job: JobId | None = None
    node: NodeId | None = None
    attempt: AttemptNumber | None = None
    number: int = 0  # given by the store

    def numbered(self, number: int) -> "Event":
        return Event(
            at=self.at,
            kind=self.kind,
            text=self.text,
            job=self.job,
            node=self.node,
            attempt=self.attempt,
            number=number,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Contents of one commit: complete new rows, events, receipts, and the number up to
    which requests were granted."""

    jobs: tuple[Job, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    nodes: tuple[Node, ...] = ()
    saves: tuple[Save, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    events: tuple[Event, ...] = ()
    queues: QueueTree | None = None
    uses: tuple[QueueUsage, ...] = ()
    spent: tuple[BudgetSpent, ...] = ()
    debts: tuple[Debt, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    services: tuple[Service, ...] = ()
    # added to those recorded, and to the sums of their days
    accounts: tuple[UsageRecord, ...] = ()
    gateway_counts: tuple[GatewayCount, ...] = ()  # whose tokens are in `accounts`
    forgotten_processes: tuple[ProcessId, ...] = ()  # with their counts
    granted: Sequence | None = None
    forgotten: tuple[JobId, ...] = ()  # with all that belongs to them
    removed: tuple[NodeId, ...] = ()  # nodes that hold nothing

    def __bool__(self) -> bool:
        rows = (
            self.jobs,
            self.attempts,
            self.allocations,
            self.nodes,
            self.saves,
            self.forgotten,
        )
        shares = (self.uses, self.spent, self.debts, self.reservations, self.services)
        counts = (self.accounts, self.gateway_counts, self.forgotten_processes)
        return any(
            (*rows, *shares, *counts, self.receipts, self.events, self.removed)
        ) or not (self.queues is None and self.granted is None)


@dataclass(slots=True)
class _Index:
    """Index of the unfinished jobs by state and by `start_by`, and their number by
    queue and user."""

    by_state: dict[JobState, dict[JobId, Job]] = field(
        default_factory=lambda: {state: {} for state in JobState}
    )
    with_deadline: dict[JobId, Job] = field(default_factory=dict)
    in_queue: dict[QueueName, int] = field(default_factory=dict)
    of_user: dict[UserName, int] = field(default_factory=dict)

    def put(self, job: Job) -> None:
        self.in_queue[job.spec.queue] = self.in_queue.get(job.spec.queue, 0) + 1
        self.of_user[job.owner] = self.of_user.get(job.owner, 0) + 1
        self.by_state[job.state][job.id] = job
        if job.spec.start_by is not None:
            self.with_deadline[job.id] = job

    def drop(self, job: Job) -> None:
        del self.by_state[job.state][job.id]
        self.with_deadline.pop(job.id, None)
        _count_down(self.in_queue, job.spec.queue)
        _count_down(self.of_user, job.owner)


def _count_down(counts: dict[Name, int], key: Name) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


@dataclass(slots=True, kw_only=True)
class World:
    """State of everything that is not over. For ended jobs, it has only the state and
    since when they have ended (wall clock).

    `attempts` holds the newest attempt of each unfinished job; `saves` its resumable
    checkpoints, oldest first, and `retired` those that are not used any more though they
    verify; `allocations` all that are not released; `reservations`
    those that are open; `relocations` the receipts of the relocations of the last day;
    `services` those that are not stopped; `gateway_counts` what the ledger has of the
    processes of gateways that may still report.
    """

    cluster: ClusterId
    term: int
    granted: Sequence = Sequence(0)
    jobs: dict[JobId, Job] = field(default_factory=dict)
    ended: dict[JobId, JobState] = field(default_factory=dict)
    ended_at: dict[JobId, float] = field(default_factory=dict)
    attempts: dict[JobId, Attempt] = field(default_factory=dict)
    allocations: dict[AllocationKey, Allocation] = field(default_factory=dict)
    saves: dict[JobId, tuple[Save, ...]] = field(default_factory=dict)
    retired: dict[JobId, frozenset[SaveKey]] = field(default_factory=dict)
    nodes: dict[NodeId, Node] = field(default_factory=dict)
    queues: QueueTree = field(default_factory=QueueTree)
    uses: dict[tuple[QueueName, UserName], QueueUsage] = field(default_factory=dict)
    spent: dict[QueueName, BudgetSpent] = field(default_factory=dict)
    debts: dict[QueueName, Debt] = field(default_factory=dict)
    reservations: dict[JobId, Reservation] = field(default_factory=dict)
    relocations: dict[tuple[JobId, int], Receipt] = field(default_factory=dict)
    services: dict[ServiceName, Service] = field(default_factory=dict)
    gateway_counts: dict[CountKey, GatewayCount] = field(default_factory=dict)
    _index: "_Index | None" = field(default=None, init=False, repr=False, compare=False)

    def in_state(self, state: JobState) -> Mapping[JobId, Job]:
        """Return the unfinished jobs in this state. After the first call, only `apply`
        may change the jobs."""
        return self._indexed().by_state[state]

    def with_deadline(self) -> Mapping[JobId, Job]:
        """Return the unfinished jobs that have a `start_by`. After the first call, only
        `apply` may change the jobs."""
        return self._indexed().with_deadline

    def queues_named(self) -> Set[QueueName]:
        """Return the queues that unfinished jobs are in. After the first call, only
        `apply` may change the jobs."""
        return self._indexed().in_queue.keys()

    def unfinished_of(self, user: UserName) -> int:
        """Return how many unfinished jobs the user has. After the first call, only
        `apply` may change the jobs."""
        return self._indexed().of_user.get(user, 0)

    def held_gpu_millis(self, seat: Seat) -> int:
        """Return how many GPUs of the node (in thousandths) this seat takes from other
        jobs: those of the seat, or all GPUs of the node if the seat is exclusive."""
        node = self.nodes.get(seat.node) if seat.exclusive else None
        return (
            seat.gpu_millis
            if node is None
            else len(node.inventory.gpus) * MILLIS_PER_GPU
        )

    def _indexed(self) -> "_Index":
        if self._index is None:
            self._index = _Index()
            for job in self.jobs.values():
                self._index.put(job)
        return self._index

    def apply(self, changes: Changes) -> None:
        """Apply the committed changes. The world is then what a new head would load."""
        for job in changes.jobs:
            self._apply_job(job)
        self.nodes.update((node.id, node) for node in changes.nodes)
        for removed_node in changes.removed:
            self.nodes.pop(removed_node, None)
        self._apply_attempts(changes.attempts)
        self._apply_allocations(changes.allocations)
        self._apply_saves(changes.saves)
        self._apply_shares(changes)
        if changes.granted is not None:
            self.granted = changes.granted
        for id in changes.forgotten:
            del self.ended[id], self.ended_at[id]
        if changes.forgotten or changes.receipts:
            rows = (*self.relocations.values(), *changes.receipts)
            self.relocations = of_last_day(rows, forgotten=frozenset(changes.forgotten))

    def _apply_job(self, job: Job) -> None:
        if self._index is not None:
            previous_job = self.jobs.get(job.id)
            if previous_job is not None:
                self._index.drop(previous_job)
            if not job.is_final:
                self._index.put(job)
        if job.is_final:
            self.ended[job.id], self.ended_at[job.id] = job.state, job.since
            for book in (self.jobs, self.attempts, self.saves, self.retired):
                book.pop(job.id, None)
        else:
            self.jobs[job.id] = job

    def _apply_attempts(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            newest_attempt = self.attempts.get(attempt.job, attempt)
            if (
                attempt.job not in self.ended
                and attempt.number >= newest_attempt.number
            ):
                self.attempts[attempt.job] = attempt

    def _apply_allocations(self, allocations: Iterable[Allocation]) -> None:
        for allocation in allocations:
            if allocation.state == SeatState.RELEASED:
                self.allocations.pop(allocation.key, None)
            else:
                self.allocations[allocation.key] = allocation

    def _apply_saves(self, saves: Iterable[Save]) -> None:
        for save in (
            stored_save for stored_save in saves if stored_save.job not in self.ended
        ):
            other_saves = [
                old_save
                for old_save in self.saves.get(save.job, ())
                if (old_save.attempt, old_save.step) != (save.attempt, save.step)
            ]
            kept_saves = [*other_saves, save] if save.is_usable else other_saves
            self.saves[save.job] = tuple(
                sorted(kept_saves, key=lambda one: (one.step, one.attempt))
            )
            if not kept_saves:
                del self.saves[save.job]
            if save.retired is not None:
                retired = self.retired.get(save.job, frozenset())
                self.retired[save.job] = retired | {save_key(save)}

    def _apply_shares(self, changes: Changes) -> None:
        self.queues = changes.queues or self.queues
        self.uses.update(((use.queue, use.user), use) for use in changes.uses)
        self.spent.update((spent.queue, spent) for spent in changes.spent)
        self.debts.update((debt.queue, debt) for debt in changes.debts)
        for reservation in changes.reservations:
            self.reservations[reservation.job] = reservation
            if reservation.ended:
                del self.reservations[reservation.job]
        for service in changes.services:
            self.services[service.name] = service
            if service.state == ServiceState.STOPPED:
                del self.services[service.name]
        self._apply_gateway_counts(changes)

    def _apply_gateway_counts(self, changes: Changes) -> None:
        counts = self.gateway_counts
        counts.update((count.key, count) for count in changes.gateway_counts)
        gone = set(changes.forgotten_processes)
        if gone:
            for key in [key for key in counts if key[0] in gone]:
                del counts[key]

    def state_of(self, job: JobId) -> JobState | None:
        """Return the state of the job, even if the job is over. None if the job is not
        known."""
        return self.jobs[job].state if job in self.jobs else self.ended.get(job)

    def forgot(self, job: JobId) -> bool:
        """Return whether a job had this id but is not kept any more."""
        sequence = sequence_of(job)
        return (
            sequence is not None
            and sequence <= self.granted
            and self.state_of(job) is None
        )
