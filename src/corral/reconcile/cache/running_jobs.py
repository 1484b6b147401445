"""Preemption candidates, kept sorted from pass to pass and examined one at a time."""

from bisect import bisect_left, insort
from typing import NamedTuple

from corral.domain.attempt import Allocation, Attempt
from corral.domain.ids import JobId, QueueName
from corral.domain.job import Job
from corral.domain.job_states import LIVE
from corral.domain.queue_policy import Preempt
from corral.domain.queue_tree import QueueTree
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.world import AllocationKey
from corral.reconcile.changeset import Draft
from corral.reconcile.in_place import leaving_seats
from corral.reconcile.preemption.reservations import gang_later, running_gang
from corral.schedule import Roster, RunningGang
from corral.schedule.preemption.candidates import Alike, Listed
from corral.schedule.quota.balances import Standing


class Looked(NamedTuple):
    """A running gang as an earlier pass computed it, with the objects from which it was
    computed. While these are still the same objects, only values that depend on time
    are computed again. `over`: queues whose budget was spent; `seats`: the seats that
    the gang held."""

    job: Job
    attempt: Attempt
    tree: QueueTree
    over: frozenset[QueueName]
    seats: tuple[tuple[AllocationKey, Allocation], ...]
    running: RunningGang

    def holds(
        self, draft: Draft, job: Job, attempt: Attempt, over: frozenset[QueueName]
    ) -> bool:
        return (
            self.job is job
            and self.attempt is attempt
            and self.tree is draft.tree
            and self.over == over
            and all(
                draft.allocation(key) is allocation for key, allocation in self.seats
            )
        )


class LiveJobs:
    """Cache of jobs that start or run, grouped by queue, priority and kind. A job that
    is still the same object is not read again."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, Job] = {}
        self.with_limit: dict[JobId, Job] = {}
        self.late_jobs: set[JobId] = set()
        self.groups: dict[Alike, list[Listed]] = {}
        self.looked: dict[JobId, Looked] = {}

    def see(self, draft: Draft) -> None:
        """Update the running jobs to the draft."""
        live = draft.by_id(*LIVE)
        for id in self._jobs.keys() - live.keys():
            self._remove_job(self._jobs.pop(id))
        job_of = self._jobs.get
        for job in [job for id, job in live.items() if job_of(id) is not job]:
            if job.id in self._jobs:
                self._remove_job(self._jobs.pop(job.id))
            attempt = draft.attempt(job.id)
            if attempt is not None:
                self._jobs[job.id] = job
                insort(self.groups.setdefault(_group_key(job), []), _sort_entry(job))
                if job.spec.max_duration_seconds is not None:
                    self.with_limit[job.id] = job
                if attempt.protected_until is not None:
                    self.late_jobs.add(job.id)

    def _remove_job(self, job: Job) -> None:
        self.looked.pop(job.id, None)
        self.with_limit.pop(job.id, None)
        self.late_jobs.discard(job.id)
        group = self.groups[_group_key(job)]
        del group[bisect_left(group, _sort_entry(job))]
        if not group:
            del self.groups[_group_key(job)]


def lent_to(draft: Draft, live: LiveJobs) -> float:
    """Return the number of GPUs of jobs that were started out of order because of their
    long wait, and are still protected."""
    live.see(draft)
    attempts = (draft.attempt(id) for id in live.late_jobs)
    return (
        sum(
            seat.gpu_millis
            for attempt in attempts
            if attempt
            and attempt.protected_until
            and draft.now.wall < attempt.protected_until
            for seat in attempt.seats
        )
        / MILLIS_PER_GPU
    )


def roster_of(
    draft: Draft, live: LiveJobs, standing: Standing, over: frozenset[QueueName]
) -> Roster:
    """Return the roster of running jobs: those that another job may have a right to
    stop, and those that are already ending. `over`: queues whose budget is spent."""
    live.see(draft)
    beyond = frozenset(
        queue.name
        for queue in draft.tree.queues
        if any(
            standing.gives_back(ancestor.name)
            for ancestor in draft.tree.path(queue.name)
        )
    )
    groups = {
        alike: list(group)
        for alike, group in live.groups.items()
        if (job := draft.job(group[0].job)) and _may_give_way(draft, job, beyond)
    }

    def look(id: JobId) -> RunningGang | None:
        job, attempt = draft.job(id), draft.attempt(id)
        if job is None or attempt is None:
            return None
        if job.state.is_leaving:
            return running_gang(draft, job, attempt, over, stopping=True)
        if _may_give_way(draft, job, beyond):
            return _look_again(draft, live, job, attempt, over)
        return None

    leaving = sorted(map(_sort_entry, leaving_seats(draft)))
    return Roster(groups, [listed.job for listed in leaving], look)


def _look_again(
    draft: Draft, live: LiveJobs, job: Job, attempt: Attempt, over: frozenset[QueueName]
) -> RunningGang:
    """Return the running gang. Its values of an earlier pass are reused if only time
    has passed since."""
    last_look = live.looked.get(job.id)
    if last_look is not None and last_look.holds(draft, job, attempt, over):
        return gang_later(draft, job, attempt, last_look.running)
    running = running_gang(draft, job, attempt, over, stopping=False)
    seats = tuple((row.key, row) for row in draft.seats_of(attempt))
    # of one that is let go no row may be left to compare
    if len(seats) == len(attempt.seats):
        live.looked[job.id] = Looked(job, attempt, draft.tree, over, seats, running)
    return running


def _may_give_way(draft: Draft, job: Job, beyond: frozenset[QueueName]) -> bool:
    spec = job.spec
    saves = spec.preemptible or spec.checkpoint is not None
    if not job.state.is_live:
        return False
    if saves or spec.queue in beyond or spec.queue not in draft.tree.by_name:
        return True
    return draft.tree.queue(spec.queue).preempt == Preempt.ANY


def _group_key(job: Job) -> Alike:
    spec = job.spec
    return (spec.queue, spec.priority, spec.checkpoint is not None, spec.preemptible)


def _sort_entry(job: Job) -> Listed:
    return Listed(order_of(job), job.id)


def order_of(job: Job) -> tuple[int, int]:
    """Return a sort key for the order of submission."""
    return (job.submitted, job.spec.array_index or 0)
