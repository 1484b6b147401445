"""Records of the jobs that stop so that another can start."""

from dataclasses import replace
from typing import TypedDict

from corral.domain.attempt import Attempt, Seat
from corral.domain.ids import JobId
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.resources import Shape
from corral.domain.usage import PreemptWhy, Victim
from corral.reconcile.changeset import Draft
from corral.reconcile.preemption.texts import min_runtime_left_seconds
from corral.schedule import Preempted
from corral.schedule.decision import Shrunk
from corral.schedule.defragment import Relocated


def build_victim(draft: Draft, one: Preempted) -> Victim:
    """Return the record of a job that is to stop, as the scheduler decided."""
    job, attempt = draft.job(one.job), draft.attempt(one.job)
    assert job is not None
    assert attempt is not None
    min_runtime_left = max(0.0, min_runtime_left_seconds(draft, job, attempt))
    moved = one if isinstance(one, Relocated | Shrunk) else None
    millis = sum(seat.gpu_millis for seat in attempt.seats)
    if isinstance(one, Shrunk):
        millis -= sum(seat.gpu_millis for seat in one.to)
    return Victim(
        job=one.job,
        attempt=job.attempt,
        due_at=draft.now.wall + min_runtime_left,
        why=one.why,
        gpu_millis=millis,
        to=moved.to if moved is not None else (),
        shape=moved.shape if moved is not None else None,
        of_nodes=len(attempt.seats),
    )


def update_victim(draft: Draft, victim: Victim) -> Victim:
    """Return the victim; with its loss, if its end was seen in this pass."""
    job = draft.job(victim.job)
    is_same_attempt = job is not None and job.attempt == victim.attempt
    if victim.gone_at is not None or (
        is_same_attempt and job and job.state.is_on_nodes
    ):
        return victim
    receipt = next(
        (
            receipt
            for receipt in draft.receipts
            if (receipt.job, receipt.attempt) == (victim.job, victim.attempt)
            and receipt.kind.is_preemption
        ),
        None,
    )
    if receipt is None:
        return replace(victim, gone_at=draft.now.wall)
    return replace(
        victim,
        gone_at=draft.now.wall,
        steps_lost=receipt.steps_lost,
        gpu_seconds_lost=receipt.gpu_seconds_lost,
        loss=receipt.loss,
    )


def told_before(draft: Draft) -> dict[JobId, list[Victim]]:
    """Return, by waiting job, the jobs that stop for it or have just left for it,
    because seats were reserved for it earlier."""
    victims_by_job: dict[JobId, list[Victim]] = {}
    preempted_jobs = {
        receipt.job for receipt in draft.receipts if receipt.kind.is_preemption
    }
    for job in draft.all_jobs():
        leaves = job.state == JobState.STOPPING or job.id in preempted_jobs
        attempt = draft.attempt(job.id) if leaves else None
        if attempt is not None and attempt.gave_way_to is not None:
            victim = Victim(
                job=job.id,
                attempt=job.attempt,
                due_at=job.since,
                why=_why_then(draft, attempt.gave_way_to, job),
                **_given_by(job, attempt),
            )
            victims_by_job.setdefault(attempt.gave_way_to, []).append(
                update_victim(draft, victim)
            )
    return victims_by_job


class _Given(TypedDict):
    gpu_millis: int
    to: tuple[Seat, ...]
    shape: Shape | None
    of_nodes: int


def _given_by(job: Job, attempt: Attempt) -> _Given:
    """Return what a job that was asked to stop gives, and with what it goes on."""
    seats = tuple(seat for seat in attempt.seats if seat.node in attempt.stays_on)
    shape = None
    if attempt.resized_to is not None:
        shape = Shape(nodes=attempt.resized_to, resources=job.spec.resources)
    given_seats = (seat for seat in attempt.seats if seat not in seats)
    return {
        "gpu_millis": sum(seat.gpu_millis for seat in given_seats),
        "to": seats,
        "shape": shape,
        "of_nodes": len(attempt.seats),
    }


def _why_then(draft: Draft, by: JobId, victim: Job) -> PreemptWhy:
    """Return the right by which the victim was stopped, as the reservation for the job
    `by` records it. Without such a record, return the right that applies between two
    such jobs, as in schedule.victims."""
    reservation = draft.reservations.get(by) or draft.world.reservations.get(by)
    for known_victim in reservation.victims if reservation is not None else ():
        if (known_victim.job, known_victim.attempt) == (victim.id, victim.attempt):
            return known_victim.why
    attempt = draft.attempt(victim.id)
    if attempt is not None and attempt.relocated:
        return PreemptWhy.ROOM
    taker = draft.job(by)
    if victim.spec.preemptible:
        return PreemptWhy.PREEMPTIBLE
    if taker is None or taker.spec.queue != victim.spec.queue:
        return PreemptWhy.RECLAIM
    is_equal = taker.spec.priority == victim.spec.priority
    return PreemptWhy.SERVICE if is_equal else PreemptWhy.PRIORITY
