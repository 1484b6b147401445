"""A job of a play, what is kept for one, and where its queues stand at first."""

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
    """`left_seconds`: of service until its end, as it was when its seats were given.
    `starts` gives an end that was planned for an earlier start. `gone_at`: it is
    stopping, and its seats come free then. `told_by`: the job that it yields to.
    `own_priority`: whatever its queue has spent."""

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
        """Return the work since its seats were given and its state was restored."""
        return max(0.0, now - self.placed_at - self.overhead_seconds)

    def back_in_line(self, now: float, served_seconds: float) -> Waiting:
        """The gang as it waits again, after so much more service that is kept."""
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
        """Return the running gang as a head would describe it."""
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
    """Reservation for a waiting gang and its victims: (job, which of its starts)."""

    reserved: Reserved
    victims: tuple[tuple[JobId, int], ...]


def victims_left(
    kept: SimulatedReservation, running: Mapping[JobId, SimulatedJob]
) -> list[SimulatedJob]:
    """The victims that still hold their seats."""
    simulated_jobs = ((running.get(id), start) for id, start in kept.victims)
    return [
        job for job, start in simulated_jobs if job is not None and job.starts == start
    ]


def as_it_stands(
    kept: SimulatedReservation, running: Mapping[JobId, SimulatedJob]
) -> Reserved:
    """Return the reservation in its present state."""
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
    """One that cannot save. `beyond`: queues that borrow, or owe."""
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
    """Return the preemption candidates and all that are stopping, as a head would
    describe them. `queues`: of all jobs."""
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
    """The same object as before as long as it would be equal."""
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
    """GPUs of the elders that are in their turn, and are not coming to their end."""
    elders = (
        job.seats
        for job in running
        if not job.stopping
        and job.protected_until is not None
        and now < job.protected_until
    )
    return sum(seat.gpu_millis for seats in elders for seat in seats) / MILLIS_PER_GPU


def endings_of(
    running: Iterable[SimulatedJob],
    holding: Callable[[Waiting, Sequence[Seat]], QuotaHolding],
) -> list[SeatEnd]:
    """Return the running jobs with a known limit, and when they end by it. They are up
    at once."""
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
    """Return promises as a head would store them: a start that moves by a moment stays
    as before. They are in the order of notification, so that two passes with the same
    promises are noticed."""
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
