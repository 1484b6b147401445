"""A job of a replay, the reservation for it, and the initial state of its queues."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import fmod

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, QueueName
from corral.domain.queue_policy import Preempt
from corral.domain.queue_tree import QueueTree
from corral.domain.units import MILLIS_PER_GPU
from corral.replay.snapshot import Coming, Present, SeatHolder
from corral.schedule import NodeTypes, Promise, Reserved, RunningGang, SeatEnd, Waiting
from corral.schedule.placement.availability import SAME_SECONDS, START_SECONDS
from corral.schedule.quota.balances import QuotaHolding, Standing
from corral.schedule.quota.borrowing import owing


@dataclass(slots=True)
class SimulatedJob:
    """A job of a replay. `left_seconds` is the service that it still needed when its
    seats were assigned. `starts` counts its starts, so that an end planned for an
    earlier start is recognised. If `gone_at` is set, the job is stopping, and its seats
    come free at that time. `told_by` is the job for which it is stopped. `own_priority`
    is its priority regardless of its queue's budget."""

    gang: Waiting
    needs_seconds: float
    left_seconds: float
    can_save: bool
    restart_seconds: float
    own_priority: int
    overhead_seconds: float = 0.0
    seats: tuple[Seat, ...] = ()
    port: int = 0
    placed_at: float = 0.0
    starts: int = 0
    gone_at: float | None = None
    comes_back: bool = False
    told_by: JobId | None = None
    protected_until: float | None = None
    known: RunningGang | None = None

    @property
    def stopping(self) -> bool:
        return self.gone_at is not None

    @property
    def ends_at(self) -> float:
        return self.placed_at + self.overhead_seconds + self.left_seconds

    def worked_seconds(self, now: float) -> float:
        """Return the seconds of work in the present start, without the time in which
        the job's state was restored."""
        return max(0.0, now - self.placed_at - self.overhead_seconds)

    def back_in_line(self, now: float, served_seconds: float) -> Waiting:
        """Return the stopped job as a waiting gang at its old place. `served_seconds`
        is the service that it keeps from its last start."""
        return replace(
            self.gang,
            since=now,
            served_seconds=self.gang.served_seconds + served_seconds,
            restart_seconds=self.restart_seconds,
            waited_seconds=self.gang.waited_by(max(self.gang.since, self.placed_at)),
            likes=frozenset(seat.node for seat in self.seats),
        )

    def as_holder(self) -> SeatHolder:
        return SeatHolder(
            gang=self.gang,
            seats=self.seats,
            placed_at=self.placed_at,
            port=self.port,
            can_save=self.can_save,
            restart_seconds=self.restart_seconds,
            frees_at=self.gone_at,
            comes_back=self.comes_back,
            protected_until=self.protected_until,
        )

    def as_running(
        self, now: float, min_runtime_over: bool, *, save_seconds: float
    ) -> RunningGang:
        """Return the running gang as a head would describe it, saving every
        `save_seconds`."""
        gang, ran = self.gang, now - self.placed_at
        unsaved = (
            (fmod(ran, save_seconds) if save_seconds else 0.0) if self.can_save else ran
        )
        gpus = sum(seat.gpu_millis for seat in self.seats) / MILLIS_PER_GPU
        return RunningGang(
            job=gang.job,
            queue=gang.queue,
            user=gang.user,
            priority=gang.priority,
            seats=self.seats,
            started=self.placed_at,
            min_runtime_over=min_runtime_over,
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
class SimulatedReservation:
    """Reservation for a waiting gang, with its victims. Each victim is a pair: the job,
    and the number of the start in which it was chosen."""

    reserved: Reserved
    victims: tuple[tuple[JobId, int], ...]


def victims_left(
    kept: SimulatedReservation, running: Mapping[JobId, SimulatedJob]
) -> list[SimulatedJob]:
    """Return the victims that still run in the start in which they were chosen."""
    simulated_jobs = ((running.get(id), start) for id, start in kept.victims)
    return [
        job for job, start in simulated_jobs if job is not None and job.starts == start
    ]


def as_it_stands(
    kept: SimulatedReservation, running: Mapping[JobId, SimulatedJob]
) -> Reserved:
    """Return the reservation as it is now, with only the remaining victims."""
    simulated_jobs = victims_left(kept, running)
    nodes = {seat.node for seat in kept.reserved.seats}
    return replace(
        kept.reserved,
        victims=tuple(job.gang.job for job in simulated_jobs),
        pending=any(
            job.told_by == kept.reserved.job
            and any(seat.node in nodes for seat in job.seats)
            for job in simulated_jobs
        ),
    )


def standing_of(
    present: Present,
    coming: Iterable[Coming],
    fleet: NodeTypes,
    holding: Sequence[QuotaHolding] = (),
) -> Standing:
    gangs = [*present.waiting, *(holder.gang for holder in present.holders)]
    return Standing(
        present.tree,
        capacity=fleet.capacity,
        kinds={gpu.type for node in present.nodes for gpu in node.inventory.gpus},
        past=present.past,
        holding=holding,
        stripped=present.stripped,
        others={gang.queue for gang in gangs}
        | {arrival.gang.queue for arrival in coming},
        owing=owing(present.debts, present.tree, present.now),
    )


def may_give_way(tree: QueueTree, gang: Waiting, beyond: Set[QueueName]) -> bool:
    """Return whether the gang may be preempted even though it cannot save. `beyond`
    holds the queues that borrow or owe GPUs."""
    if gang.preemptible or gang.queue in beyond or gang.queue not in tree.by_name:
        return True
    return tree.queue(gang.queue).preempt == Preempt.ANY


def candidates_of(
    running: Iterable[SimulatedJob],
    standing: Standing,
    queues: Set[QueueName],
    *,
    now: float,
    save_seconds: float,
) -> list[RunningGang]:
    """Return the running jobs that may be preempted and all stopping jobs, as a head
    would describe them. `queues` holds the queues of all jobs."""
    tree, gives_back = standing.tree, standing.gives_back
    checked_queues = tree.queues if len(queues) > 1 else ()
    beyond = {
        q.name
        for q in checked_queues
        if any(gives_back(queue.name) for queue in tree.path(q.name))
    }
    simulated_jobs = [
        job
        for job in running
        if job.stopping or job.can_save or may_give_way(tree, job.gang, beyond)
    ]
    min_runtime = tree.min_runtime_seconds
    return [
        _cached_running_gang(job, now, now >= job.placed_at + min_runtime, save_seconds)
        for job in sorted(simulated_jobs, key=lambda job: job.gang.order)
    ]


def _cached_running_gang(
    job: SimulatedJob, now: float, min_runtime_over: bool, save_seconds: float
) -> RunningGang:
    """Return the description of the running gang. The same object is returned again
    while nothing in it has changed."""
    running_gang = None if save_seconds or not job.can_save else job.known
    if running_gang is None or (
        running_gang.min_runtime_over,
        running_gang.stopping,
    ) != (
        min_runtime_over,
        job.stopping,
    ):
        running_gang = job.known = job.as_running(
            now, min_runtime_over, save_seconds=save_seconds
        )
    return running_gang


def lent_to(running: Iterable[SimulatedJob], now: float) -> float:
    """Return the number of GPUs held by jobs that are protected because of their age
    (late jobs). Stopping jobs are left out."""
    late_jobs = (
        job.seats
        for job in running
        if not job.stopping
        and job.protected_until is not None
        and now < job.protected_until
    )
    return (
        sum(seat.gpu_millis for seats in late_jobs for seat in seats) / MILLIS_PER_GPU
    )


def endings_of(
    running: Iterable[SimulatedJob],
    holding: Callable[[Waiting, Sequence[Seat]], QuotaHolding],
) -> list[SeatEnd]:
    """Return the seats of running jobs with a time limit, and when that limit ends
    them. Jobs of a replay start without delay."""
    return [
        SeatEnd(
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


def as_told(
    promised: Iterable[Promise], known: Iterable[Promise]
) -> tuple[Promise, ...]:
    """Return the promises as a head would store them: a start that differs from the
    known one by only a moment stays unchanged. They are in the order in which they were
    made, so that two passes with the same promises can be compared."""
    known_by_job = {promise.job: promise for promise in known}
    return tuple(
        sorted(
            (
                _stable_promise(promise, known_by_job.get(promise.job))
                for promise in promised
            ),
            key=lambda one: (one.since, one.job),
        )
    )


def _stable_promise(promise: Promise, before: Promise | None) -> Promise:
    if before is None or abs(promise.start - before.start) > SAME_SECONDS:
        return promise
    return before if replace(promise, start=before.start) == before else promise
