"""Promised starts of jobs: their events and their outcomes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from corral.domain.event_kind import EventKind
from corral.domain.ids import JobId
from corral.domain.reason_code import ReasonCode
from corral.domain.time_point import moment_text
from corral.domain.units import MILLIS_PER_GPU, counted_gpus
from corral.domain.usage import Reservation
from corral.reconcile.changeset import Draft
from corral.reconcile.missed_promises import why_late
from corral.reconcile.preemption.reservations import standing_reservations, stopped_for
from corral.reconcile.preemption.texts import name_of
from corral.schedule import Decision, Promise, Reasons
from corral.schedule.placement.availability import SAME_SECONDS
from corral.schedule.waiting import Reason

MOST_NAMED: Final = 3


def promised_of(draft: Draft) -> list[Promise]:
    """Return the promised starts that are in force. A promise is listed without seats
    while one of its nodes may not take work, but it keeps its position."""
    return [
        Promise(
            job=standing_reservation.job,
            shape=standing_reservation.shape,
            seats=standing_reservation.seats
            if _are_there(draft, standing_reservation)
            else (),
            start=standing_reservation.latest_start,
            after=standing_reservation.after,
            since=standing_reservation.since,
        )
        for standing_reservation in standing_reservations(draft)
        if standing_reservation.latest_start is not None
    ]


def _are_there(draft: Draft, one: Reservation) -> bool:
    """Return whether all nodes of the reservation are known and may take work, apart
    from the arrival of their heartbeats."""
    nodes = [draft.node(seat.node) for seat in one.seats]
    return all(node is not None and node.may_take_work for node in nodes)


def take_promises(draft: Draft, decision: Decision) -> None:
    """Record the promised starts, and add events for promises that have changed."""
    reservations_by_job = {
        standing_reservation.job: standing_reservation
        for standing_reservation in standing_reservations(draft)
        if standing_reservation.latest_start is not None
    }
    placed = {placed_job.job for placed_job in decision.placed}
    # Other jobs stop for these: that is reported instead.
    reserved = {reserved_job.job for reserved_job in decision.reserved}
    for promise in decision.promised:
        previous_promise = reservations_by_job.pop(promise.job, None)
        row = Reservation(
            job=promise.job,
            shape=promise.shape,
            seats=promise.seats,
            victims=stopped_for(draft, promise.job),
            since=promise.since,
            latest_start=promise.start,
            after=promise.after,
        )
        if previous_promise is None or _is_news(previous_promise, row):
            draft.reservations[row.job] = row
            _record_promise(draft, previous_promise, row)
    for reservation in reservations_by_job.values():
        if reservation.job not in placed:
            ended_reservation = replace(reservation, ended=why_late(draft, reservation))
            draft.reservations[reservation.job] = ended_reservation
            if reservation.job not in reserved:
                _tell_ended(draft, ended_reservation)


def _is_news(before: Reservation, row: Reservation) -> bool:
    """Return whether the promise of `row` differs from the promise before: other seats,
    other jobs to wait for, or a start moved by more than a moment."""
    assert before.latest_start is not None
    assert row.latest_start is not None
    moved_seconds = abs(row.latest_start - before.latest_start)
    is_same_promise = replace(row, latest_start=before.latest_start) == before
    return not is_same_promise or moved_seconds > SAME_SECONDS


def _record_promise(draft: Draft, before: Reservation | None, row: Reservation) -> None:
    """Record an event for a first promise, or for a promise that had to be moved, with
    the cause."""
    assert row.latest_start is not None
    if before is None:
        draft.tell(
            EventKind.PROMISED,
            f"{name_of(draft, row.job)}: {_promise_text(draft, row)}",
            job=row.job,
        )
    elif (
        before.latest_start is not None
        and row.latest_start > before.latest_start + SAME_SECONDS
    ):
        late = f"{name_of(draft, row.job)} cannot start at its promised time"
        text = f"{late}: {why_late(draft, before)}; {_promise_text(draft, row)}"
        draft.tell(EventKind.PROMISE_MOVED, text, job=row.job)


def _tell_ended(draft: Draft, ended: Reservation) -> None:
    text = f"the promised start of {name_of(draft, ended.job)} was withdrawn: {ended.ended}"
    draft.tell(EventKind.PROMISE_ENDED, text, job=ended.job)


def promise_reasons(draft: Draft, reasons: Reasons) -> Reasons:
    """Return the reasons why jobs wait. For each job with a promised start, the reason
    states the promise and the jobs that it waits for."""
    reasons_by_job = {
        standing_reservation.job: Reason(
            code=ReasonCode.PROMISED,
            sentence=_promise_text(draft, standing_reservation),
            suggestions=tuple(
                f"see: corral why {job}" for job in standing_reservation.after[:1]
            ),
        )
        for standing_reservation in standing_reservations(draft)
        if standing_reservation.latest_start is not None
        and standing_reservation.job in reasons
    }
    return reasons.instead(reasons_by_job) if reasons_by_job else reasons


def _promise_text(draft: Draft, one: Reservation) -> str:
    assert one.latest_start is not None
    millis = one.shape.gpu_millis
    verb = (
        "are"
        if millis > MILLIS_PER_GPU or (not millis and one.shape.nodes > 1)
        else "is"
    )
    reservation_text = (
        f"{counted_gpus(millis) if millis else one.shape} {verb} kept for it"
    )
    names = _job_names(draft, one.after)
    limit = "reaches its limit" if len(one.after) == 1 else "reach their limits"
    when = f", when {names} {limit}" if names else ""
    return (
        f"the job starts at {moment_text(one.latest_start)} at the latest{when}; "
        f"{reservation_text}"
    )


def _job_names(draft: Draft, jobs: Sequence[JobId]) -> str:
    names = [name_of(draft, job) for job in jobs[:MOST_NAMED]]
    if len(jobs) > MOST_NAMED:
        return f"{', '.join(names)} and {len(jobs) - MOST_NAMED} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
