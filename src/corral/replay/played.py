"""A job of a play, what is kept for one, and where its queues stand at first."""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from math import fmod

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, QueueName
from corral.domain.queue import Preempt, QueueTree
from corral.domain.units import MILLIS_PER_GPU
from corral.replay.present import Coming, Holder, Present
from corral.schedule import Ending, Fleet, Reserved, Running, Waiting
from corral.schedule.ahead import START_SECONDS
from corral.schedule.standing import Holding, Standing


@dataclass(slots=True)
class Job:
    """`left_seconds`: of service until its end, as it was when its seats were given. `starts` tells
    an end that was planned for an earlier start. `gone_at`: it is stopping, and its seats come free
    then. `told_by`: for whom it gives way."""

    gang: Waiting
    needs_seconds: float
    left_seconds: float
    can_save: bool
    restart_seconds: float
    overhead_seconds: float = 0.0
    seats: tuple[Seat, ...] = ()
    port: int = 0
    placed_at: float = 0.0
    starts: int = 0
    gone_at: float | None = None
    comes_back: bool = False
    told_by: JobId | None = None
    protected_until: float | None = None
    known: Running | None = None

    @property
    def stopping(self) -> bool:
        return self.gone_at is not None

    @property
    def ends_at(self) -> float:
        return self.placed_at + self.overhead_seconds + self.left_seconds

    def worked_seconds(self, now: float) -> float:
        """Since its seats were given, and it had restored itself."""
        return max(0.0, now - self.placed_at - self.overhead_seconds)

    def back_in_line(self, now: float, worked_seconds: float) -> Waiting:
        """The gang as it waits again, after so much more service."""
        kept = worked_seconds if self.can_save else 0.0
        return replace(
            self.gang,
            since=now,
            served_seconds=self.gang.served_seconds + kept,
            restart_seconds=self.restart_seconds,
            likes=frozenset(seat.node for seat in self.seats),
        )

    def as_holder(self) -> Holder:
        return Holder(
            gang=self.gang,
            seats=self.seats,
            placed_at=self.placed_at,
            port=self.port,
            can_save=self.can_save,
            restart_seconds=self.restart_seconds,
            frees_at=self.gone_at,
            comes_back=self.comes_back,
        )

    def as_running(self, now: float, guard_over: bool, *, save_seconds: float) -> Running:
        """As a head would tell of it."""
        gang, ran = self.gang, now - self.placed_at
        unsaved = (fmod(ran, save_seconds) if save_seconds else 0.0) if self.can_save else ran
        gpus = sum(seat.gpu_millis for seat in self.seats) / MILLIS_PER_GPU
        return Running(
            job=gang.job,
            queue=gang.queue,
            user=gang.user,
            priority=gang.priority,
            seats=self.seats,
            started=self.placed_at,
            guard_over=guard_over,
            lost_gpu_seconds=gpus * unsaved,
            restart_seconds=self.restart_seconds,
            can_save=self.can_save,
            preemptible=gang.preemptible,
            stopping=self.stopping,
            kin=gang.kin,
            apart_from=gang.place.apart_from,
            served_seconds=gang.served_seconds,
            serves_since=self.placed_at + self.overhead_seconds,
            protected_until=self.protected_until,
        )


@dataclass(slots=True)
class Kept:
    """What is kept for a waiting gang, and who gives way to it: (job, which of its starts)."""

    reserved: Reserved
    victims: tuple[tuple[JobId, int], ...]


def standing_of(present: Present, coming: Iterable[Coming], fleet: Fleet) -> Standing:
    gangs = [*present.waiting, *(one.gang for one in present.holders)]
    return Standing(
        present.tree,
        capacity=fleet.capacity,
        kinds={gpu.type for node in present.nodes for gpu in node.inventory.gpus},
        past=present.past,
        stripped=present.stripped,
        others={gang.queue for gang in gangs} | {one.gang.queue for one in coming},
    )


def may_give_way(tree: QueueTree, gang: Waiting, beyond: Set[QueueName]) -> bool:
    """One that cannot save. `beyond`: queues that borrow."""
    if gang.preemptible or gang.queue in beyond or gang.queue not in tree.by_name:
        return True
    return tree.queue(gang.queue).preempt == Preempt.ANY


def endings_of(
    running: Iterable[Job], holding: Callable[[Waiting, Sequence[Seat]], Holding]
) -> list[Ending]:
    """Those whose limit is known, and when they will have gone by it. They are up at once."""
    return [
        Ending(
            job=job.gang.job,
            seats=job.seats,
            until=job.placed_at + job.gang.holds_seconds - START_SECONDS,
            holding=holding(job.gang, job.seats),
            kin=job.gang.kin,
            apart_from=job.gang.place.apart_from,
        )
        for job in running
        if job.gang.holds_seconds is not None
    ]
