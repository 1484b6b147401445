"""Replay with the live scheduling decision in virtual time. It proceeds from event to
event, with one pass of `schedule.decide` at each.

The head uses the same function. The states of nodes and queues are updated with each
decision, and never rebuilt.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, QueueName
from corral.replay.budget_spending import Spending
from corral.replay.event_queue import TOGETHER_SECONDS, Agenda
from corral.replay.node_failures import Failing
from corral.replay.node_state import NodeStates
from corral.replay.runtime_learning import ReplayLearning
from corral.replay.simulated_job import (
    SimulatedJob,
    SimulatedReservation,
    as_it_stands,
    as_told,
    candidates_of,
    endings_of,
    lent_to,
    standing_of,
    victims_left,
)
from corral.replay.snapshot import (
    Coming,
    Happened,
    JobClass,
    Present,
    SeatHolder,
    Terms,
)
from corral.schedule import (
    Groups,
    NodeTypes,
    Placed,
    Reserved,
    RunningGang,
    Waiting,
    decide,
)
from corral.schedule.order.late_jobs import turn_seconds
from corral.schedule.placement.gpu_sharing import Shares
from corral.schedule.prediction.runtime_model import Lessons
from corral.schedule.quota.balances import QuotaHolding
from corral.schedule.quota.borrowing import changes_at, claims_of, counted, owing
from corral.schedule.quota.limits import holding_of

MOST_AT_ONCE: Final = 20  # passes at one moment, should it not come to rest


class Play:
    """One replay of a possible course of events from the present state.

    Args:
        seconds: What each gang of the present still needs: for a gang that holds seats,
            the seconds until its end if it is not stopped; for a waiting gang, its
            seconds of service.
        coming: The gangs that will be submitted, the soonest first.
        terms: Costs of preemption, and failures of nodes.
        lessons: Learns from each end of a gang; None keeps what is learned at present.
        hear: Is called at each start, stop and end, in the order in which they happen.
    """

    def __init__(
        self,
        present: Present,
        seconds: Mapping[JobId, float],
        coming: Sequence[Coming] = (),
        *,
        terms: Terms = Terms(),  # noqa: B008 - frozen
        hear: Callable[[Happened], object] | None = None,
        lessons: Lessons | None = None,
    ) -> None:
        self.now = present.now
        self.passes = 0
        self._terms, self._hear = terms, hear
        self._learning = ReplayLearning(lessons, present.learned)
        self._failing = Failing(
            terms.failures, [n.id for n in present.nodes], present.now
        )
        self._min_runtime_seconds = present.tree.min_runtime_seconds
        self._stripped = present.stripped
        self._spending = Spending(
            present.tree if terms.counts_budgets else None, present.now
        )
        self._rooms = NodeStates(present)
        self._types = {n.id: n.inventory.types for n in present.nodes}
        self._fleet = NodeTypes(present.nodes)
        self._standing = standing_of(present, coming, self._fleet)
        self._jobs: dict[JobId, SimulatedJob] = {}
        self._queues: set[QueueName] = set()  # of these jobs
        self._running: dict[JobId, SimulatedJob] = {}
        self._waiting = Groups()
        self._of_array: Counter[JobId] = Counter()
        self._kept: dict[JobId, SimulatedReservation] = {}
        self._promised = tuple(present.promised)
        self._coming, self._is_new = coming, True
        self._agenda = Agenda(self._running, self._waiting, coming)
        self._shares, self._debts = Shares(), dict(present.debts)
        self._load_present(present, seconds)

    def _load_present(self, present: Present, seconds: Mapping[JobId, float]) -> None:
        waitings = [*present.waiting, *(holder.gang for holder in present.holders)]
        for gang in sorted(waitings, key=lambda gang: gang.order):
            self._shares.arrive(gang.shapes[0])
        for gang in sorted(present.waiting, key=lambda gang: gang.since):
            self._submit_job(gang, seconds[gang.job])
        for holder in present.holders:
            self._add_running_job(holder, seconds[holder.gang.job])
        self._rooms.open()
        for reserved in present.reserved:
            self._keep(reserved)
            for job in victims_left(self._kept[reserved.job], self._running):
                job.told_by = (
                    reserved.job if reserved.pending and job.stopping else None
                )

    def present(self) -> Present:
        """Return a snapshot of the current state, from which a replay may continue that
        knows no more than a head does."""
        return Present(
            now=self.now,
            nodes=list(self._rooms.nodes.values()),
            tree=self._standing.tree,
            past=self._standing.past,
            holders=[job.as_holder() for job in self._running.values()],
            waiting=[gang for gangs in self._waiting for gang in gangs],
            reserved=[
                as_it_stands(simulated_reservation, self._running)
                for simulated_reservation in self._kept.values()
            ],
            promised=self._promised,
            closed=self._rooms.closed,
            suspicion=self._rooms.suspicion,
            stripped=self._stripped,
            learned=self._learning.table,
            debts=dict(self._debts),
        )

    # -- forward ---------------------------------------------------------------------------------

    def run(
        self, *, until: float = inf, job: JobId | None = None, most_passes: float = inf
    ) -> float | None:
        """Replay from event to event until no event is left before `until` (wall
        clock), or until `most_passes` more scheduling passes have run.

        If `job` is given, stop as soon as that job has started, and return the time of
        its start; None if it has not started.
        """
        pass_limit = self.passes + most_passes
        while self.passes < pass_limit:
            if job is not None and job in self._running:
                return self._running[job].placed_at
            event_time = self.now if self._is_new else self._next()
            if event_time > until or event_time == inf:
                break
            self._step(max(event_time, self.now))
        return None

    def _next(self) -> float:
        """Return the time of the next event: an end, submission or failure; or the
        moment at which a victim must be notified, a gang has waited long enough for a
        reservation, or a queue's debt or budget changes."""
        soonest = min(self._agenda.due_at, max(self.now, self._learning.due_at))
        soonest = min(
            [
                soonest,
                *(
                    self._due_at(simulated_reservation)
                    for simulated_reservation in self._kept.values()
                ),
            ]
        )
        if soonest == inf:
            return inf
        owed = changes_at(self._debts.values(), self._standing.tree, self.now)
        return min(soonest, owed, self._failing.due_at, self._spending.due_at)

    def _step(self, now: float) -> None:
        """Handle all events at the time `now`. Then run scheduling passes until no
        further job is stopped at this time."""
        self._standing.pass_time(now - self.now)
        self.now = now
        self._see_owing()
        if self._spending.pass_time(now):
            self._apply_budgets()
        for id in self._agenda.ended(now):
            self._release_job(id)
        while self._failing.due_at <= now:
            for job in self._rooms.on(self._failing.fail()):
                self._fail_job(job)
        for submitted_at, gang, seconds, can_save in self._agenda.submitted(now):
            self._shares.arrive(gang.shapes[0])
            self._submit_job(
                replace(gang, since=submitted_at), seconds, can_save=can_save
            )
        self._is_new |= self._agenda.has_wait_ended(now)
        self._is_new |= any(
            self._due_at(simulated_reservation) <= now
            for simulated_reservation in self._kept.values()
        )
        self._is_new |= self._learning.due_at <= now
        pass_limit = self.passes + MOST_AT_ONCE
        # as in the head: who can start without them is placed first
        while self._is_new:
            self._is_new = False
            if self.passes == pass_limit:
                break
            if self._waiting:
                self._run_pass()
            self._tell_due()
            self._is_new |= self._learning.learn(now, self._served_times)
        claims = claims_of(self._standing, self._waiting)
        half_life_seconds = self._standing.tree.half_life_seconds
        self._debts |= {
            debt.queue: debt
            for debt in counted(self._debts, claims, now, half_life_seconds)
        }

    def _see_owing(self) -> None:
        """Update the set of queues that owe GPU time. If the set has changed, another
        scheduling pass is needed."""
        previous_owing = self._standing.owing
        self._standing.owing = owing(self._debts, self._standing.tree, self.now)
        self._is_new |= self._standing.owing != previous_owing

    # -- jobs come and go ------------------------------------------------------------------------

    def _submit_job(
        self, gang: Waiting, seconds: float, *, can_save: bool = True
    ) -> None:
        self._queues.add(gang.queue)
        job = self._jobs[gang.job] = SimulatedJob(
            gang=gang,
            needs_seconds=seconds,
            left_seconds=seconds,
            can_save=can_save,
            restart_seconds=self._terms.restart_seconds,
            own_priority=gang.priority,
        )
        job.gang = self._spending.ranked(job.gang, job.own_priority)
        self._wait(job.gang)

    def _wait(self, gang: Waiting) -> None:
        self._waiting.put(gang)
        self._is_new = True
        self._agenda.plan_wait_ends(self._standing.tree, gang, self.now)

    def _add_running_job(self, holder: SeatHolder, seconds: float) -> None:
        """Add a job that holds seats from the beginning of the replay."""
        ran = max(0.0, self.now - holder.placed_at)
        job = SimulatedJob(
            gang=holder.gang,
            needs_seconds=ran + seconds,
            left_seconds=ran + seconds,
            can_save=holder.can_save,
            restart_seconds=holder.restart_seconds,
            gone_at=holder.frees_at,
            comes_back=holder.comes_back,
            protected_until=holder.protected_until,
            own_priority=holder.gang.priority,
        )
        self._jobs[holder.gang.job] = job
        self._queues.add(holder.gang.queue)
        self._occupy_seats(job, holder.seats, holder.port, holder.placed_at)
        if holder.frees_at is not None:
            self._agenda.plan_end(job, holder.frees_at)
        self._standing.take(self._holding(job.gang, holder.seats))

    def _start(self, placed: Placed, *, is_late: bool) -> None:
        """Start the placed job. The pass has already taken its seats. If `is_late`,
        the job is protected from preemption for one turn."""
        job = self._jobs[placed.job]
        job.overhead_seconds = job.restart_seconds if job.starts else 0.0
        job.protected_until = (
            self.now + turn_seconds(job.gang.served_seconds) if is_late else None
        )
        self._waiting.drop(placed.job)
        self._kept.pop(placed.job, None)
        self._occupy_seats(job, placed.seats, placed.port, self.now)
        self._report_event(JobClass.STARTED, job)

    def _occupy_seats(
        self, job: SimulatedJob, seats: tuple[Seat, ...], port: int, at: float
    ) -> None:
        gang = job.gang
        job.seats, job.port, job.placed_at, job.known = seats, port, at, None
        job.starts += 1
        self._running[gang.job] = job
        self._rooms.seat(job)
        self._spending.take(self._holding(gang, seats))
        if gang.array is not None:
            self._of_array[gang.array] += 1
        self._agenda.plan_end(job, job.ends_at)

    def _release_job(self, id: JobId) -> None:
        """Free the seats of the job. If it has ended, record that. If it was stopped
        for another job, it waits again at its old place in the queue."""
        job = self._running.pop(id)
        self._free_seats(job)
        self._is_new = True
        done = job.worked_seconds(self.now)
        if not job.comes_back or done >= job.left_seconds - TOGETHER_SECONDS:
            job.left_seconds = 0.0
            self._report_event(JobClass.ENDED, job)
            self._learning.hear(job.gang, done)
            return
        job.left_seconds = (
            job.left_seconds - done if job.can_save else job.needs_seconds
        )
        self._report_event(JobClass.PREEMPTED, job)
        self._again(job, done if job.can_save else 0.0)

    def _fail_job(self, job: SimulatedJob) -> None:
        """Handle the failure of the job's node: the job waits again, with its last
        saved state."""
        if job.stopping and not job.comes_back:
            self._release_job(job.gang.job)
            return
        del self._running[job.gang.job]
        self._free_seats(job)
        earlier_seconds, worked = (
            job.needs_seconds - job.left_seconds,
            job.worked_seconds(self.now),
        )
        kept_seconds = (
            self._terms.failures.kept_seconds(earlier_seconds + worked, earlier_seconds)
            if job.can_save
            else 0.0
        )
        job.left_seconds = job.needs_seconds - kept_seconds
        self._report_event(JobClass.FAILED, job)
        self._again(job, kept_seconds - earlier_seconds)

    def _again(self, job: SimulatedJob, served_seconds: float) -> None:
        job.gone_at, job.comes_back, job.told_by = None, False, None
        job.gang = job.back_in_line(self.now, served_seconds)
        self._is_new = True
        self._wait(job.gang)

    def _served_times(self) -> Iterator[tuple[Waiting, float]]:
        for job in self._running.values():
            yield job.gang, job.gang.served_seconds + job.worked_seconds(self.now)
        for gangs in self._waiting:
            yield from ((gang, gang.served_seconds) for gang in gangs)

    def _free_seats(self, job: SimulatedJob) -> None:
        gang = job.gang
        self._rooms.leave(job)
        if gang.array is not None:
            self._of_array[gang.array] -= 1
        self._standing.give(self._holding(gang, job.seats))
        self._spending.take(self._holding(gang, job.seats), -1)

    def _apply_budgets(self) -> None:
        """Update priorities and the GPUs that queues own, after a budget was spent or
        is available again."""
        self._is_new, self._stripped = True, self._spending.stripped
        quota_holdings = [
            self._holding(job.gang, job.seats) for job in self._running.values()
        ]
        self._standing = standing_of(
            self.present(), self._coming, self._fleet, quota_holdings
        )
        for gang in [gang for gangs in self._waiting for gang in gangs]:
            job = self._jobs[gang.job]
            job.gang = self._spending.ranked(job.gang, job.own_priority)
            self._waiting.put(job.gang)
        for job in self._running.values():
            job.gang, job.known = (
                self._spending.ranked(job.gang, job.own_priority),
                None,
            )

    def _holding(self, gang: Waiting, seats: Sequence[Seat]) -> QuotaHolding:
        return holding_of(
            gang.queue, gang.user, seats, self._types, preemptible=gang.preemptible
        )

    def _report_event(self, kind: JobClass, job: SimulatedJob) -> None:
        if self._hear is not None:
            service = job.needs_seconds - job.left_seconds
            happened = Happened(
                self.now, kind, job.gang.job, job.seats, service, job.told_by
            )
            self._hear(happened)

    # -- a pass ----------------------------------------------------------------------------------

    def _run_pass(self) -> None:
        self.passes += 1
        previous_reservations = [
            as_it_stands(simulated_reservation, self._running)
            for simulated_reservation in self._kept.values()
        ]
        decision = decide(
            self._rooms.free.values(),
            self._waiting,
            fleet=self._fleet,
            now=self.now,
            running_of_array=self._of_array,
            standing=self._standing,
            learned=self._learning.table,
            running=self._candidates,
            reserved=previous_reservations,
            shares=self._shares,
            ends=lambda: endings_of(self._running.values(), self._holding),
            known=self._promised,
            lent=lambda: lent_to(self._running.values(), self.now),
        )
        promised = as_told(decision.promised, self._promised)
        for placed in decision.placed:
            self._start(placed, is_late=placed.job in decision.late_jobs)
        for dropped in decision.dropped:
            del self._kept[dropped]
        for reserved in decision.reserved:
            self._keep(reserved)
        self._take_back([*previous_reservations, *decision.reserved])
        # shares have changed, and what is kept or promised: a head's next look might
        # decide more
        self._is_new |= bool(decision.placed or decision.dropped or decision.reserved)
        self._is_new |= promised != self._promised
        self._promised = promised

    def _take_back(self, reserved: Sequence[Reserved]) -> None:
        """Free the seats that a pass has reserved for waiting gangs. The pass counted
        them as taken, and the next pass will reserve them again."""
        self._rooms.refill(
            {seat.node for reserved in reserved for seat in reserved.seats}
        )
        for simulated_reservation in self._kept.values():
            gang, seats = (
                self._jobs[simulated_reservation.reserved.job].gang,
                simulated_reservation.reserved.seats,
            )
            self._standing.give(self._holding(gang, seats))

    def _candidates(self) -> list[RunningGang]:
        return candidates_of(
            self._running.values(),
            self._standing,
            self._queues,
            now=self.now,
            save_seconds=self._terms.save_seconds,
        )

    # -- preemption -----------------------------------------------------------------------------

    def _keep(self, reserved: Reserved) -> None:
        running = self._running
        victims = tuple(
            (id, running[id].starts) for id in reserved.victims if id in running
        )
        self._kept[reserved.job] = SimulatedReservation(
            reserved=reserved, victims=victims
        )

    def _due_at(self, kept: SimulatedReservation) -> float:
        """Return when all victims of the reservation that were not yet asked to stop
        have passed their minimum run time; infinite if there are no such victims."""
        untold = [
            job.placed_at
            for job in victims_left(kept, self._running)
            if not job.stopping
        ]
        return max(untold) + self._min_runtime_seconds if untold else inf

    def _tell_due(self) -> None:
        """Stop the victims of each reservation that is due now. All victims of one gang
        are stopped together, and their seats come free after their grace period."""
        for simulated_reservation in [
            due_reservation
            for due_reservation in self._kept.values()
            if self._due_at(due_reservation) <= self.now
        ]:
            for job in victims_left(simulated_reservation, self._running):
                if not job.stopping:
                    self._stop(job, simulated_reservation.reserved.job)

    def _stop(self, job: SimulatedJob, by: JobId) -> None:
        gone_at = self.now + self._terms.grace_seconds
        job.gone_at, job.comes_back, job.told_by = gone_at, True, by
        if gone_at <= self.now:
            self._release_job(job.gang.job)
        elif gone_at < job.ends_at:
            self._agenda.plan_end(job, gone_at)
