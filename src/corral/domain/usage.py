"""Usage of queues and users, and reservations."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import AttemptNumber, JobId, QueueName, UserName
from corral.domain.resources import Shape

BYTES_PER_GIB: Final = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUsage:
    """Usage of one user's jobs in one queue, and what they have given back.

    The first three are decayed to the moment `at` (wall clock); `total_gpu_seconds` is not. What is
    still held is not in it: that is known from the allocations.
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
    """Spending of a queue with a budget in the period that began at `since`.

    `demoted`: the budget was seen to be spent, or over; it was told once.
    """

    queue: QueueName
    since: float
    gpu_seconds: float = 0.0
    money: float = 0.0
    demoted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """Borrowed GPUs of a queue that shares one line by service, beyond its due.

    Averaged as the half-life weighs: `gpus` at the moment `at` (wall clock), below 0 what it is
    owed. Since then it holds `rate` GPUs more than it is due.
    """

    queue: QueueName
    at: float
    gpus: float = 0.0
    rate: float = 0.0


class PreemptWhy(StrEnum):
    """Right by which one job takes the GPUs of another."""

    RECLAIM = "reclaim"  # they are its queue's own, and were borrowed
    PRIORITY = "priority"  # both are of one queue, and it has the higher priority
    SERVICE = "service"  # of one line by service, it is likely to end sooner, and has waited
    PREEMPTIBLE = "preemptible"  # the other was submitted as one that gives way to any
    ROOM = "room"  # the other is moved: it starts elsewhere at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A job that is stopped so that another can start.

    `due_at`: not before this moment (wall clock) is it expected to be told to stop. What it lost is
    known once it has been seen gone, at `gone_at`. `to`: where it is moved, if it is, in one of its
    shapes.
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

    @property
    def was_stopped(self) -> bool:
        """Whether it has given way, and did not end by itself before."""
        return self.gone_at is None or bool(self.loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Seats that are kept for one waiting job, and who is stopped for it: one durable record.

    It ends when the job is placed, or when it is no longer wanted: then whoever was not yet told to
    stop runs on. `ended` says how. One with a `latest_start` (wall clock) is a promise: nobody is
    stopped for it, it waits for the ends of those in `after`, and others may use its seats that
    have gone by then; `victims` are those who were stopped for it before. One with `moved_for` is
    of a job that has stopped to start there, so that the other has room.
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
