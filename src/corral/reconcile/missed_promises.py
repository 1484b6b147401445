"""Reasons why a gang cannot start at its promised time."""

from collections.abc import Iterator

from corral.domain.attempt import Attempt, Seat
from corral.domain.job import Job
from corral.domain.job_states import ON_NODES, JobState
from corral.domain.usage import Reservation
from corral.reconcile.changeset import Draft
from corral.reconcile.latest_end import holds_seconds, until_of
from corral.reconcile.preemption.reservations import standing_reservations
from corral.reconcile.preemption.texts import name_of
from corral.schedule.placement.availability import SAME_SECONDS


def why_late(draft: Draft, before: Reservation) -> str:
    """Return a sentence on what prevents a start at the promised time, for example a
    job that exceeds its limit, a job with a right to the place, or a removed node."""
    latest = before.latest_start
    assert latest is not None
    for seat in before.seats:
        node = draft.node(seat.node)
        if node is None or not node.takes_work:
            return f"node {seat.node} gets no new jobs now"
    late = []
    for job, attempt in _in_the_way(draft, before):
        ends_at = until_of(draft, job, attempt)
        if ends_at <= draft.now.wall or ends_at > latest + SAME_SECONDS:
            late.append((job, attempt))
    for job, attempt in late:
        if attempt.placed_at <= before.since or _was_to_be_gone(job, attempt, latest):
            return _overrun_text(draft, job)
    for job, _ in late:
        return f"{name_of(draft, job.id)} may keep its GPUs longer"
    node_ids = {seat.node for seat in before.seats}
    for standing_reservation in standing_reservations(draft):
        if standing_reservation.job != before.job and node_ids & {
            seat.node for seat in standing_reservation.seats
        }:
            return f"{name_of(draft, standing_reservation.job)} is to start there first"
    return "the limits of its queue have changed"


def _in_the_way(draft: Draft, before: Reservation) -> Iterator[tuple[Job, Attempt]]:
    """Yield the jobs that may delay the promised start: first those that hold promised
    GPUs, then those on the same nodes and those whose end the promise waited for."""
    seats_by_node = {seat.node: seat for seat in before.seats}
    blocking_attempts: list[tuple[bool, Job, Attempt]] = []
    for job in draft.in_states(*ON_NODES):
        attempt = draft.attempt(job.id)
        if attempt is None:
            continue
        seats = [
            allocation.seat
            for allocation in draft.seats_of(attempt)
            if allocation.seat.node in seats_by_node
        ]
        if seats or job.id in before.after:
            meets = any(
                _has_common_gpus(seat, seats_by_node[seat.node]) for seat in seats
            )
            blocking_attempts.append((not meets, job, attempt))
    for _, job, attempt in sorted(
        blocking_attempts, key=lambda one: (one[0], one[1].id)
    ):
        yield job, attempt


def _has_common_gpus(one: Seat, other: Seat) -> bool:
    return bool(set(one.gpus) & set(other.gpus)) or not (one.gpus and other.gpus)


def _was_to_be_gone(job: Job, attempt: Attempt, latest: float) -> bool:
    """Return whether the job should have ended before the promised start, by its limit
    when it was placed."""
    seconds = holds_seconds(job.spec)
    return seconds is not None and attempt.placed_at + seconds <= latest + SAME_SECONDS


def _overrun_text(draft: Draft, job: Job) -> str:
    name = name_of(draft, job.id)
    if job.state == JobState.STARTING:
        return f"{name} takes longer to start than expected"
    if job.state == JobState.RUNNING:
        return f"{name} still runs after its limit"
    return f"{name} is still stopping"
