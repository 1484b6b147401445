"""Usage of queues and users, and reservations of seats for waiting jobs."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import AttemptNumber, JobId, QueueName, UserName
from corral.domain.resources import Shape

BYTES_PER_GIB: Final = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUsage:
    """Usage of one user's jobs in one queue, for resources that they have already
    released.

    The first three amounts are decayed to the moment `at` (wall clock);
    `total_gpu_seconds` is not. Resources that are still held are not counted here:
    their usage is known from the allocations.
    """

    queue: QueueName
    user: UserName
    at: float
    gpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_gib_seconds: float = 0.0
    total_gpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSpent:
    """Spending of a queue with a budget, in the period that began at `since`.

    `demoted`: the budget is spent or over, and that has been reported once.
    """

    queue: QueueName
    since: float
    gpu_seconds: float = 0.0
    money: float = 0.0
    demoted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """GPUs that a queue has borrowed beyond its due. It is used if queues are ordered
    together by service.

    `gpus` is the average up to the moment `at` (wall clock), weighted by the half-life.
    If it is below 0, other queues owe the queue GPUs. From `at` on, the queue holds
    `rate` GPUs more than its due.
    """

    queue: QueueName
    at: float
    gpus: float = 0.0
    rate: float = 0.0


class PreemptWhy(StrEnum):
    """The reason why one job may take the GPUs of another."""

    RECLAIM = "reclaim"  # they are its queue's own, and were borrowed
    PRIORITY = "priority"  # both are of one queue, and it has the higher priority
    # of one line by service, it is likely to end sooner, and has waited
    SERVICE = "service"
    PREEMPTIBLE = "preemptible"  # the other was submitted as preemptible by any job
    ROOM = "room"  # the other is moved: it starts elsewhere at once
    LENT = "lent"  # the other runs on GPUs that a sleeping replica had lent


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A job that is stopped so that another can start.

    `due_at` is the earliest moment (wall clock) at which it is expected to be stopped.
    Its lost work is known after its end is seen, at `gone_at`. `to` is its new place if
    it is moved, in one of its shapes. A job that gives only some of its `of_nodes`
    nodes stays on the seats in `to`; `gpu_millis` are then those that it gives.
    """

    job: JobId
    attempt: AttemptNumber
    due_at: float
    why: PreemptWhy = PreemptWhy.RECLAIM
    gpu_millis: int = 0
    gone_at: float | None = None
    steps_lost: int | None = None
    gpu_seconds_lost: float = 0.0
    loss: str = ""  # the same as a part of a sentence; "" for one that ended by itself
    to: tuple[Seat, ...] = ()
    shape: Shape | None = None
    of_nodes: int = 0

    @property
    def given_nodes(self) -> int:
        """Return how many of its nodes an elastic job gives, if it goes on with the
        others; 0 if it is stopped or moved as a whole."""
        if self.shape is None or self.why == PreemptWhy.ROOM:
            return 0
        return self.of_nodes - self.shape.nodes

    @property
    def was_stopped(self) -> bool:
        """Return whether the job was stopped or moved to make room, or still will be.
        False if it ended by itself before that."""
        return self.gone_at is None or bool(self.loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Seats on nodes that are kept for one waiting job, and the jobs that are stopped
    for it (`victims`), in one durable record.

    The reservation ends when the job is placed or no longer needs it. Victims that were
    not yet stopped then continue to run. `ended` is why it ended. With a `latest_start`
    (wall clock), it is a promise: no job is stopped for it. It waits for the ends of
    the jobs in `after`, and other jobs may use its seats if they end by then. Its
    `victims` are then the jobs that were stopped for it earlier. With `moved_for`, the
    job itself was stopped and will start on these seats, to make room for the job in
    `moved_for`.
    """

    job: JobId
    shape: Shape
    seats: tuple[Seat, ...]
    victims: tuple[Victim, ...]
    since: float
    ended: str = ""
    latest_start: float | None = None
    after: tuple[JobId, ...] = ()
    moved_for: JobId | None = None
