"""Preemption of running jobs. A durable record, the reservation, names the jobs that
stop and the waiting job that gets their room.

The record is written before any of those jobs is asked to stop. It lasts until the
waiting job has started, or is no longer wanted.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from corral.domain.attempt import Attempt, Seat
from corral.domain.event_kind import EventKind
from corral.domain.ids import JobId, QueueName
from corral.domain.job import Job
from corral.domain.job_states import JobEvent, JobState, StopWhy
from corral.domain.reason_code import ReasonCode
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.usage import PreemptWhy, Reservation, Victim
from corral.reconcile.attained_service import (
    restart_seconds,
    serves_since,
    unsaved_seconds,
)
from corral.reconcile.changeset import Draft
from corral.reconcile.preemption.takings import tell_taking
from corral.reconcile.preemption.texts import (
    given_text,
    is_untold,
    kept_text,
    left_seconds,
    min_runtime_left_seconds,
    moved_text,
    name_of,
    right_text,
)
from corral.reconcile.preemption.victim_records import (
    build_victim,
    told_before,
    update_victim,
)
from corral.reconcile.sizes import smaller_shapes
from corral.reconcile.usage import priority_of
from corral.schedule import Decision, Placed, Preempted, Reasons, Reserved, RunningGang
from corral.schedule.waiting import Reason


def standing_reservations(draft: Draft) -> Iterator[Reservation]:
    """Yield the reservations that have not ended."""
    merged: Mapping[JobId, Reservation] = {
        **draft.world.reservations,
        **draft.reservations,
    }
    return (reservation for reservation in merged.values() if not reservation.ended)


# -- input of the scheduler ----------------------------------------------------------------


def running_gang(
    draft: Draft,
    job: Job,
    attempt: Attempt,
    over: frozenset[QueueName],
    *,
    stopping: bool,
) -> RunningGang:
    """Return the running job in the scheduler's terms. `over`: queues whose budget is
    spent. `stopping`: the job is already ending."""
    seats = [
        allocation.seat
        for allocation in draft.seats_of(attempt)
        if not allocation.charged and allocation.seat.node not in attempt.stays_on
    ]
    millis = sum(seat.gpu_millis for seat in seats)
    return RunningGang(
        job=job.id,
        queue=job.spec.queue,
        user=job.owner,
        priority=priority_of(draft, job, over),
        seats=tuple(seats),
        started=attempt.placed_at,
        **_as_time_goes(draft, job, attempt, millis),
        restart_seconds=restart_seconds(attempt),
        can_save=job.spec.checkpoint is not None,
        preemptible=job.spec.preemptible,
        stopping=stopping,
        kin=job.spec.kin,
        apart_from=job.spec.place.apart_from,
        served_seconds=job.served_seconds,
        serves_since=serves_since(attempt),
        protected_until=attempt.protected_until,
        smaller=() if stopping else smaller_shapes(draft, job, attempt, seats),
    )


def gang_later(
    draft: Draft, job: Job, attempt: Attempt, before: RunningGang
) -> RunningGang:
    """Return the running gang with the values that change with time updated. Nothing
    else may have changed since `before`: neither the job nor its attempt, its seats,
    the queues, or the spent budgets."""
    return before.later(**_as_time_goes(draft, job, attempt, before.gpu_millis))


class _Going(TypedDict):
    min_runtime_over: bool
    lost_gpu_seconds: float


def _as_time_goes(draft: Draft, job: Job, attempt: Attempt, millis: int) -> _Going:
    return {
        "min_runtime_over": min_runtime_left_seconds(draft, job, attempt) <= 0,
        "lost_gpu_seconds": millis / MILLIS_PER_GPU * unsaved_seconds(draft, attempt),
    }


def reserved_of(draft: Draft) -> list[Reserved]:
    return [
        Reserved(
            job=standing_reservation.job,
            shape=standing_reservation.shape,
            seats=standing_reservation.seats,
            victims=tuple(
                victim.job
                for victim in standing_reservation.victims
                if victim.gone_at is None
            ),
            pending=any(
                _still_there(draft, standing_reservation, victim)
                for victim in standing_reservation.victims
            ),
            staying=tuple(
                (victim.job, victim.to)
                for victim in standing_reservation.victims
                if victim.given_nodes and victim.gone_at is None
            ),
        )
        for standing_reservation in standing_reservations(draft)
        if standing_reservation.latest_start is None
    ]


def _still_there(draft: Draft, reservation: Reservation, victim: Victim) -> bool:
    """Return whether a job that was asked to stop still holds something on the nodes of
    the reserved seats."""
    attempt = draft.attempt(victim.job)
    if (
        victim.gone_at is not None
        or attempt is None
        or attempt.number != victim.attempt
    ):
        return False
    nodes = {seat.node for seat in reservation.seats}
    is_held = any(
        allocation.seat.node in nodes for allocation in draft.seats_of(attempt)
    )
    return is_held and attempt.gave_way_to == reservation.job


def on_the_way(draft: Draft) -> Iterator[tuple[Job, Seat]]:
    """Yield each job that is to be moved or resized and has not stopped yet, with each
    of its new seats."""
    for standing_reservation in standing_reservations(draft):
        for victim in standing_reservation.victims:
            job = draft.job(victim.job)
            if (
                job is not None
                and victim.gone_at is None
                and job.attempt == victim.attempt
            ):
                yield from ((job, seat) for seat in victim.to)


# -- what has become of them -----------------------------------------------------------------------


def see_reservations(draft: Draft) -> None:
    """Record which jobs that were to stop have gone. End reservations that are no
    longer wanted or possible."""
    for reservation in list(draft.world.reservations.values()):
        victims = tuple(update_victim(draft, victim) for victim in reservation.victims)
        for victim in victims:
            _keep_for_moved(draft, reservation, victim)
        end_reason = _why_ended(draft, reservation)
        if end_reason or victims != reservation.victims:
            draft.reservations[reservation.job] = replace(
                reservation, victims=victims, ended=end_reason
            )
        if end_reason:
            _tell_spared(draft, draft.reservations[reservation.job])


def _keep_for_moved(draft: Draft, by: Reservation, victim: Victim) -> None:
    """If a job was stopped in order to be moved and has just gone, reserve its new
    seats for it."""
    has_stopped = (
        victim.gone_at == draft.now.wall
        and draft.state_of(victim.job) == JobState.QUEUED
    )
    if not (has_stopped and victim.loss and victim.shape is not None):
        return
    draft.reservations[victim.job] = Reservation(
        job=victim.job,
        shape=victim.shape,
        seats=victim.to,
        victims=(),
        since=draft.now.wall,
        moved_for=by.job,
    )


def _why_ended(draft: Draft, one: Reservation) -> str:
    job = draft.job(one.job)
    if job is None or job.state != JobState.QUEUED:
        return f"{one.job} is {draft.state_of(one.job)}"
    if one.latest_start is not None:
        # the next pass finds it another start, in its place among the promised
        return ""
    for seat in one.seats:
        node = draft.node(seat.node)
        if node is None or not node.takes_work:
            return f"node {seat.node} gets no new jobs now"
    if draft.queues is not None and any(
        is_untold(draft, victim) for victim in one.victims
    ):
        return "the queues were changed"
    return ""


def _tell_spared(draft: Draft, ended: Reservation) -> None:
    """Record, for each job of an ended reservation that was not yet asked to stop, that
    it continues to run."""
    for victim in ended.victims:
        job = draft.job(victim.job)
        if job is not None and is_untold(draft, victim):
            text = (
                f"{job.spec.name} is no longer to be stopped for "
                f"{name_of(draft, ended.job)}: {ended.ended}"
            )
            draft.tell(EventKind.SPARED, text, job=job.id, attempt=job.attempt)


# -- what was decided ------------------------------------------------------------------------------


def take_in(draft: Draft, decision: Decision) -> None:
    """Apply the scheduler's decision: end reservations of placed and dropped jobs,
    record the new reservations and the jobs that stop for them, and ask due jobs to
    stop."""
    for placed in decision.placed:
        _end_placed(draft, placed)
    for job in decision.dropped:
        _end_reservation(draft, job)
    told_victims = told_before(draft) if decision.reserved else {}
    for reserved in decision.reserved:
        _record_reservation(
            draft, reserved, decision.preempted, told_victims.get(reserved.job, [])
        )
    for reservation in list(standing_reservations(draft)):
        _tell_due(draft, reservation)


def _record_reservation(
    draft: Draft,
    reserved: Reserved,
    preempted: tuple[Preempted, ...],
    before: list[Victim],
) -> None:
    victims = tuple(
        build_victim(draft, preempted)
        for preempted in preempted
        if preempted.by == reserved.job
    )
    victims_by_job = {
        victim.job: victim for victim in (*_gone_before(draft, reserved.job), *before)
    }
    victims += tuple(victims_by_job.values())
    draft.reservations[reserved.job] = Reservation(
        job=reserved.job,
        shape=reserved.shape,
        seats=reserved.seats,
        victims=victims,
        since=draft.now.wall,
    )
    text = f"{name_of(draft, reserved.job)}: {kept_text(draft, draft.reservations[reserved.job])}"
    draft.tell(EventKind.RESERVED, text, job=reserved.job)


def _gone_before(draft: Draft, id: JobId) -> list[Victim]:
    """Return the jobs that were stopped for this job and have already left their seats,
    by its current reservation."""
    reservation = draft.reservations.get(id) or draft.world.reservations.get(id)
    victims = reservation.victims if reservation is not None else ()
    return [
        victim
        for victim in victims
        if victim.gone_at is not None and victim.was_stopped
    ]


def stopped_for(draft: Draft, id: JobId) -> tuple[Victim, ...]:
    """Return the jobs that have left for this job, or were asked to stop. Its receipt
    names them, wherever it starts and by whatever promise. A job that was to be moved
    and has not left is not included, because it is no longer moved."""
    reservation = draft.reservations.get(id) or draft.world.reservations.get(id)
    victims = (
        victim
        for victim in (reservation.victims if reservation is not None else ())
        if victim.gone_at is None
    )
    leaving = (
        victim
        for victim in victims
        if not (is_untold(draft, victim) or victim.why == PreemptWhy.ROOM)
    )
    return (*_gone_before(draft, id), *leaving)


def _end_reservation(
    draft: Draft, id: JobId, reason: str = "the kept nodes are no longer available"
) -> None:
    reservation = draft.reservations.get(id) or draft.world.reservations[id]
    ended_reservation = replace(reservation, ended=reason)
    draft.reservations[id] = ended_reservation
    _tell_spared(draft, ended_reservation)


def end_reservations_on(draft: Draft, seats: Sequence[Seat], taker: JobId) -> None:
    """End the reservations of other jobs that need GPUs of these seats, because the
    taker gets them. The next pass renews a promise."""
    for reservation in list(standing_reservations(draft)):
        is_promise = reservation.latest_start is not None
        if is_promise or reservation.job == taker:
            continue
        pairs = itertools.product(seats, reservation.seats)
        if any(seat.competes_with(other) for seat, other in pairs):
            reason = f"{name_of(draft, taker)} takes back GPUs that it had lent"
            _end_reservation(draft, reservation.job, reason)


def _tell_due(draft: Draft, reservation: Reservation) -> None:
    """Ask all victims of a reservation to stop at the same time, once the minimum run
    time of each has passed."""
    reserving_job = draft.job(reservation.job)
    untold = [victim for victim in reservation.victims if is_untold(draft, victim)]
    if reserving_job is None or any(
        left_seconds(draft, victim) > 0 for victim in untold
    ):
        return
    for victim in untold:
        job, attempt = draft.job(victim.job), draft.attempt(victim.job)
        assert job is not None
        assert attempt is not None
        is_moved = victim.why == PreemptWhy.ROOM
        reason = (
            f"preempted for {name_of(draft, reserving_job.id)} "
            f"{right_text(draft, reserving_job, job, victim.why)}"
        )
        if is_moved:
            reason = moved_text(draft, reserving_job, victim)
        elif victim.given_nodes:
            right = right_text(draft, reserving_job, job, victim.why)
            reason = given_text(draft, reserving_job, victim, right)
        moved = draft.move(
            job, JobEvent.PREEMPTED, reason=reason, code=ReasonCode.PREEMPTED
        )
        draft.put(replace(moved, why=StopWhy.PREEMPT))
        attempt = replace(attempt, gave_way_to=reserving_job.id, relocated=is_moved)
        if victim.given_nodes and victim.shape is not None:
            attempt = replace(
                attempt,
                resized_to=victim.shape.nodes,
                stays_on=tuple(seat.node for seat in victim.to),
            )
        draft.put_attempt(attempt)


# -- receipts ------------------------------------------------------------------------------


def _end_placed(draft: Draft, placed: Placed) -> None:
    """End the reservation of the placed job, and add a receipt that names its seats,
    the stopped jobs, and the cost."""
    reservation = draft.reservations.get(placed.job) or draft.world.reservations.get(
        placed.job
    )
    job = draft.job(placed.job)
    if reservation is None or reservation.ended or job is None:
        return
    ended_reservation = replace(reservation, ended="placed")
    draft.reservations[placed.job] = ended_reservation
    _tell_spared(
        draft, replace(ended_reservation, ended="that job has started elsewhere")
    )
    taken_victims = [
        victim
        for victim in reservation.victims
        if not is_untold(draft, victim) and victim.was_stopped
    ]
    if not taken_victims:
        return
    tell_taking(draft, job, taken_victims, reservation.shape.gpu_millis)


def kept_reasons(draft: Draft, reasons: Reasons) -> Reasons:
    """Return the reasons, changed for jobs with reserved seats: their reason names the
    jobs that must stop first."""
    reasons_by_job = {}
    for standing_reservation in standing_reservations(draft):
        if (
            standing_reservation.job in reasons
            and standing_reservation.latest_start is None
        ):
            see = tuple(
                f"run: corral why {victim.job}"
                for victim in standing_reservation.victims[:1]
            )
            text = kept_text(draft, standing_reservation)
            reasons_by_job[standing_reservation.job] = Reason(
                code=ReasonCode.PREEMPTING, sentence=text, suggestions=see
            )
    return reasons.instead(reasons_by_job) if reasons_by_job else reasons
