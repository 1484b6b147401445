"""Restart in place: the next attempt begins on the seats of the failed one, in the same
commit (0167).

The job is never queued meanwhile, so no other job can get its seats.
"""

from collections.abc import Iterator
from typing import Final

from corral.domain.attempt import Attempt, Seat, SeatState
from corral.domain.cause import Cause
from corral.domain.culprits import is_rank
from corral.domain.failure_class import FailureKind
from corral.domain.job import Job
from corral.domain.job_states import LEAVING, JobEvent, JobState
from corral.domain.reason_code import ReasonCode
from corral.domain.usage import Reservation
from corral.reconcile.attempt_begin import begin_attempt
from corral.reconcile.changeset import Draft
from corral.reconcile.job_progress import may_have_progressed

MOST_NAMED_NODES: Final = 4
# failures of programs; the others speak against the node, or occur again on it
_OF_RANKS: Final = frozenset(
    {
        FailureKind.UNKNOWN,
        FailureKind.PROGRAM,
        FailureKind.CRASH,
        FailureKind.KILLED,
        FailureKind.INTERRUPTED,
        FailureKind.CHILD,
        FailureKind.HELPER,
        FailureKind.GPU_MEMORY,
        FailureKind.GPU_PROGRAM,
        FailureKind.PEER,
        FailureKind.HANG,
        FailureKind.STALL,
        FailureKind.RENDEZVOUS,
        FailureKind.SERVICE_TIMEOUT,
    }
)


def may_restart_in_place(draft: Draft, job: Job, attempt: Attempt) -> bool:
    """Return whether the next attempt of a recovering job may begin on the seats of
    this one, apart from its retry budget: only ranks failed after progress, or hung, all
    its nodes are well, and no other job waits for these seats."""
    return (
        job.state is JobState.RECOVERING
        and draft.may_place
        and draft.facts.restarts_in_place
        and job.id not in draft.facts.unrecordable
        and job.unpaid is None
        and _has_fixed_seats(job)
        and _is_of_its_ranks(attempt)
        and (attempt.failure is FailureKind.STALL or may_have_progressed(job, attempt))
        and all(_is_fit(draft, job, attempt, seat) for seat in attempt.seats)
        and not _is_awaited(draft, job, attempt)
    )


def leaving_seats(draft: Draft) -> Iterator[Job]:
    """Yield the jobs that are ending and will give back their seats: all that are
    stopping, and those recovering jobs that may not restart in place."""
    for job in draft.in_states(*LEAVING):
        attempt = draft.attempt(job.id)
        if attempt is None or not may_restart_in_place(draft, job, attempt):
            yield job


def _has_fixed_seats(job: Job) -> bool:
    """Return whether each attempt of the job has seats of the same shape, and the job
    itself decides when another begins. A replica is replaced by its service, and an
    elastic job may get another size."""
    return job.spec.replica is None and len(job.spec.shapes) == 1


def _is_of_its_ranks(attempt: Attempt) -> bool:
    """Return whether only the attempt's own ranks show why it ended."""
    if (attempt.failure or FailureKind.UNKNOWN) not in _OF_RANKS:
        return False
    if attempt.failure is FailureKind.STALL:
        # no node is blamed, and it is not the third hang at the same step
        return attempt.cause is Cause.INFRA and attempt.failed_on is None
    return is_rank(attempt.culprit)


def _is_fit(draft: Draft, job: Job, attempt: Attempt, seat: Seat) -> bool:
    """Return whether the seat is the job's until now, and its node could be chosen for
    the job today."""
    allocation = draft.world.allocations.get((job.id, attempt.number, seat.node))
    node = draft.node(seat.node)
    return (
        allocation is not None
        and allocation.state in (SeatState.HELD, SeatState.STOPPING)
        and not allocation.charged
        and node is not None
        and node.takes_work
        and not node.suspect
        and job.spec.place.admits(node.labels)
        and all(user != job.owner for user, _ in node.inventory.refused_users)
    )


def _is_awaited(draft: Draft, job: Job, attempt: Attempt) -> bool:
    """Return whether another job has a promise or a reservation that counts on the end
    of this attempt: it names the job, or keeps seats that the attempt has."""
    reservations = {**draft.world.reservations, **draft.reservations}
    return any(
        not reservation.ended
        and (
            job.id in reservation.after
            or any(victim.job == job.id for victim in reservation.victims)
            or _wants_seats(reservation, attempt, since=job.since)
        )
        for reservation in reservations.values()
    )


def _wants_seats(reservation: Reservation, attempt: Attempt, *, since: float) -> bool:
    """Return whether the reservation keeps seats that the attempt has. One that was made
    since the failure was seen may also count on the CPUs of a node."""
    return any(
        seat.competes_with(own_seat)
        or (seat.node == own_seat.node and reservation.since >= since)
        for seat in reservation.seats
        for own_seat in attempt.seats
    )


def begin_in_place(draft: Draft, job: Job, attempt: Attempt, why: str) -> Job:
    """Begin the next attempt of the job on the seats of this one, which are released in
    this draft. Return the job. `why`: what ended the attempt, as a part of a
    sentence."""
    begun_attempt = begin_attempt(
        draft,
        job,
        attempt.seats,
        port=_fresh_port(draft, attempt),
        borrowed_gpu_millis=attempt.borrowed_gpu_millis,
        protected_until=attempt.protected_until,
        in_place=True,
    )
    return draft.move(
        job,
        JobEvent.RESTARTED_IN_PLACE,
        reason=f"restarted in place on {_nodes_text(attempt)} after: {why}",
        code=ReasonCode.RESTARTED_IN_PLACE,
        attempt=begun_attempt.number,
    )


def _fresh_port(draft: Draft, attempt: Attempt) -> int:
    """Return a free port of the first node: another than the one of the failed attempt
    if there is one, because the kernel may still hold that. 0 without a free port."""
    id = attempt.nodes[0]
    node = draft.node(id)
    used_ports = {
        port
        for allocation in draft.held()
        if allocation.seat.node == id
        for port in allocation.ports
    }
    free_ports = [
        port
        for port in (node.inventory.ports if node is not None else ())
        if port not in used_ports
    ]
    other_ports = [port for port in free_ports if port != attempt.master_port]
    return next(iter([*other_ports, *free_ports]), 0)


def _nodes_text(attempt: Attempt) -> str:
    names = [str(node) for node in attempt.nodes[:MOST_NAMED_NODES]]
    if len(attempt.nodes) > MOST_NAMED_NODES:
        names.append(f"{len(attempt.nodes) - MOST_NAMED_NODES} more")
    return ", ".join(names)
