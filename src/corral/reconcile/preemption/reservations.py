"""Preemption: one durable record names the jobs that stop, and the job they make room for.

The record is written before any of those jobs is asked to stop. It lasts until the waiting
job has started, or is no longer wanted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, TypedDict

from corral.domain.attempt import Attempt, Cause, Receipt, Seat
from corral.domain.ids import JobId, QueueName
from corral.domain.job import Job
from corral.domain.job_states import JobEvent, JobState, StopWhy
from corral.domain.relocation import RELOCATION
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.usage import PreemptWhy, Reservation, Victim
from corral.reconcile.attained_service import restart_seconds, serves_since, unsaved_seconds
from corral.reconcile.changeset import Draft
from corral.reconcile.preemption.texts import (
    LIVE,
    all_taken_text,
    guard_left_seconds,
    is_untold,
    kept_text,
    left_seconds,
    moved_text,
    name_of,
    right_text,
)
from corral.reconcile.usage import priority_of
from corral.schedule import Decision, Placed, Preempted, Reasons, Reserved, RunningGang
from corral.schedule.defragment import Relocated
from corral.schedule.waiting import Reason

LEAVING: Final = (JobState.STOPPING, JobState.RECOVERING)
_STOPPED: Final = ("preemption", RELOCATION)  # receipts of those who were stopped for others


def standing_reservations(draft: Draft) -> Iterator[Reservation]:
    """Yield the reservations that have not ended."""
    merged: Mapping[JobId, Reservation] = {**draft.world.reservations, **draft.reservations}
    return (one for one in merged.values() if not one.ended)


# -- input of the scheduler ----------------------------------------------------------------


def running_gang(
    draft: Draft, job: Job, attempt: Attempt, over: frozenset[QueueName], *, stopping: bool
) -> RunningGang:
    """The job as the scheduler sees it. `over`: queues whose budget is spent."""
    held = [one.seat for one in draft.seats_of(attempt) if not one.charged]
    millis = sum(seat.gpu_millis for seat in held)
    return RunningGang(
        job=job.id,
        queue=job.spec.queue,
        user=job.owner,
        priority=priority_of(draft, job, over),
        seats=tuple(held),
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
    )


def gang_later(draft: Draft, job: Job, attempt: Attempt, before: RunningGang) -> RunningGang:
    """The same of one of which nothing has changed since that look: neither the job nor its
    attempt, its seats, the queues, or whose budget is spent."""
    return before.later(**_as_time_goes(draft, job, attempt, before.gpu_millis))


class _Going(TypedDict):
    guard_over: bool
    lost_gpu_seconds: float


def _as_time_goes(draft: Draft, job: Job, attempt: Attempt, millis: int) -> _Going:
    return {
        "guard_over": guard_left_seconds(draft, job, attempt) <= 0,
        "lost_gpu_seconds": millis / MILLIS_PER_GPU * unsaved_seconds(draft, attempt),
    }


def reserved_of(draft: Draft) -> list[Reserved]:
    return [
        Reserved(
            job=one.job,
            shape=one.shape,
            seats=one.seats,
            victims=tuple(victim.job for victim in one.victims if victim.gone_at is None),
            pending=any(_still_there(draft, one, victim) for victim in one.victims),
        )
        for one in standing_reservations(draft)
        if one.latest_start is None
    ]


def _still_there(draft: Draft, reservation: Reservation, victim: Victim) -> bool:
    """Whether a job asked to stop still holds something on the nodes of these seats."""
    attempt = draft.attempt(victim.job)
    if victim.gone_at is not None or attempt is None or attempt.number != victim.attempt:
        return False
    nodes = {seat.node for seat in reservation.seats}
    left = any(one.seat.node in nodes for one in draft.seats_of(attempt))
    return left and attempt.gave_way_to == reservation.job


def on_the_way(draft: Draft) -> Iterator[tuple[Job, Seat]]:
    """Seats that wait for those who have still to stop before they move there."""
    for one in standing_reservations(draft):
        for victim in one.victims:
            job = draft.job(victim.job)
            if job is not None and victim.gone_at is None and job.attempt == victim.attempt:
                yield from ((job, seat) for seat in victim.to)


# -- what has become of them -----------------------------------------------------------------------


def see_reservations(draft: Draft) -> None:
    """Note who has gone; end what is wanted no more, or can no longer be had."""
    for one in list(draft.world.reservations.values()):
        victims = tuple(_seen(draft, victim) for victim in one.victims)
        for victim in victims:
            _keep_for_moved(draft, one, victim)
        ended = _why_ended(draft, one)
        if ended or victims != one.victims:
            draft.reservations[one.job] = replace(one, victims=victims, ended=ended)
        if ended:
            _tell_spared(draft, draft.reservations[one.job])


def _keep_for_moved(draft: Draft, by: Reservation, victim: Victim) -> None:
    """Whoever has just stopped to be moved has the seats kept where it is to start."""
    has_stopped = victim.gone_at == draft.now.wall and draft.state_of(victim.job) == JobState.QUEUED
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


def _seen(draft: Draft, victim: Victim) -> Victim:
    job = draft.job(victim.job)
    here = job is not None and job.attempt == victim.attempt
    if victim.gone_at is not None or (here and job and job.state in (*LIVE, *LEAVING)):
        return victim
    receipt = next(
        (
            one
            for one in draft.receipts
            if (one.job, one.attempt) == (victim.job, victim.attempt) and one.kind in _STOPPED
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


def _why_ended(draft: Draft, one: Reservation) -> str:
    job = draft.job(one.job)
    if job is None or job.state != JobState.QUEUED:
        return f"it is {draft.state_of(one.job)}"
    if one.latest_start is not None:
        return ""  # the next pass finds it another start, in its place among the promised
    for seat in one.seats:
        node = draft.node(seat.node)
        if node is None or not node.takes_work:
            return f"node {seat.node} takes no work now"
    if draft.queues is not None and any(is_untold(draft, victim) for victim in one.victims):
        return "the queues were changed"
    return ""


def _tell_spared(draft: Draft, ended: Reservation) -> None:
    """Record that jobs which have not been asked to stop continue to run."""
    for victim in ended.victims:
        job = draft.job(victim.job)
        if job is not None and is_untold(draft, victim):
            text = (
                f"{job.spec.name} need not give way to {name_of(draft, ended.job)}: {ended.ended}"
            )
            draft.tell("spared", text, job=job.id, attempt=job.attempt)


# -- what was decided ------------------------------------------------------------------------------


def take_in(draft: Draft, decision: Decision) -> None:
    """Record reserved seats and their jobs, end old reservations, and notify due jobs."""
    for placed in decision.placed:
        _end_placed(draft, placed)
    for job in decision.dropped:
        _drop(draft, job)
    before = _told_before(draft) if decision.reserved else {}
    for reserved in decision.reserved:
        _record(draft, reserved, decision.preempted, before.get(reserved.job, []))
    for reservation in list(standing_reservations(draft)):
        _tell_due(draft, reservation)


def _record(
    draft: Draft, reserved: Reserved, preempted: tuple[Preempted, ...], before: list[Victim]
) -> None:
    victims = tuple(_victim(draft, one) for one in preempted if one.by == reserved.job)
    told = {one.job: one for one in (*_gone_before(draft, reserved.job), *before)}
    victims += tuple(told.values())
    draft.reservations[reserved.job] = Reservation(
        job=reserved.job,
        shape=reserved.shape,
        seats=reserved.seats,
        victims=victims,
        since=draft.now.wall,
    )
    text = f"{name_of(draft, reserved.job)}: {kept_text(draft, draft.reservations[reserved.job])}"
    draft.tell("reserved", text, job=reserved.job)


def _victim(draft: Draft, one: Preempted) -> Victim:
    job, attempt = draft.job(one.job), draft.attempt(one.job)
    assert job is not None
    assert attempt is not None
    left = max(0.0, guard_left_seconds(draft, job, attempt))
    return Victim(
        job=one.job,
        attempt=job.attempt,
        due_at=draft.now.wall + left,
        why=one.why,
        gpu_millis=sum(seat.gpu_millis for seat in attempt.seats),
        to=one.to if isinstance(one, Relocated) else (),
        shape=one.shape if isinstance(one, Relocated) else None,
    )


def _gone_before(draft: Draft, id: JobId) -> list[Victim]:
    """Return the jobs that already left the seats that were kept for it until now."""
    known = draft.reservations.get(id) or draft.world.reservations.get(id)
    victims = known.victims if known is not None else ()
    return [one for one in victims if one.gone_at is not None and one.was_stopped]


def stopped_for(draft: Draft, id: JobId) -> tuple[Victim, ...]:
    """Return the jobs that have left for it, or were stopped: its receipt names them, wherever and
    by whatever promise it starts. A job that was to be moved and has not left is no longer moved.
    """
    known = draft.reservations.get(id) or draft.world.reservations.get(id)
    told = (one for one in (known.victims if known is not None else ()) if one.gone_at is None)
    leaving = (one for one in told if not (is_untold(draft, one) or one.why == PreemptWhy.ROOM))
    return (*_gone_before(draft, id), *leaving)


def _told_before(draft: Draft) -> dict[JobId, list[Victim]]:
    """Return the jobs that stop for a job, or have just left, since other seats were kept for it
    before."""
    found: dict[JobId, list[Victim]] = {}
    gone = {one.job for one in draft.receipts if one.kind in _STOPPED}
    for job in draft.all_jobs():
        leaves = job.state == JobState.STOPPING or job.id in gone
        attempt = draft.attempt(job.id) if leaves else None
        if attempt is not None and attempt.gave_way_to is not None:
            victim = Victim(
                job=job.id,
                attempt=job.attempt,
                due_at=job.since,
                why=_why_then(draft, attempt.gave_way_to, job),
                gpu_millis=sum(seat.gpu_millis for seat in attempt.seats),
            )
            found.setdefault(attempt.gave_way_to, []).append(_seen(draft, victim))
    return found


def _why_then(draft: Draft, by: JobId, victim: Job) -> PreemptWhy:
    """Return the right by which it was stopped, as its record says; else the one between two such
    jobs, as in schedule.victims."""
    known = draft.reservations.get(by) or draft.world.reservations.get(by)
    for one in known.victims if known is not None else ():
        if (one.job, one.attempt) == (victim.id, victim.attempt):
            return one.why
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


def _drop(draft: Draft, id: JobId) -> None:
    known = draft.reservations.get(id) or draft.world.reservations[id]
    ended = replace(known, ended="what was kept is there no more")
    draft.reservations[id] = ended
    _tell_spared(draft, ended)


def _tell_due(draft: Draft, reservation: Reservation) -> None:
    """Tell all of them together to stop, once none is within its guard any more."""
    by = draft.job(reservation.job)
    untold = [one for one in reservation.victims if is_untold(draft, one)]
    if by is None or any(left_seconds(draft, one) > 0 for one in untold):
        return
    for victim in untold:
        job, attempt = draft.job(victim.job), draft.attempt(victim.job)
        assert job is not None
        assert attempt is not None
        is_moved = victim.why == PreemptWhy.ROOM
        reason = f"preempted for {name_of(draft, by.id)} {right_text(draft, by, job, victim.why)}"
        if is_moved:
            reason = moved_text(draft, by, victim)
        moved = draft.move(job, JobEvent.PREEMPTED, reason=reason, code="Preempted")
        draft.put(replace(moved, why=StopWhy.PREEMPT))
        draft.put_attempt(replace(attempt, gave_way_to=by.id, relocated=is_moved))


# -- receipts ------------------------------------------------------------------------------


def _end_placed(draft: Draft, placed: Placed) -> None:
    """Add the receipt of the placed job: its seats, the stopped jobs, and the cost."""
    known = draft.reservations.get(placed.job) or draft.world.reservations.get(placed.job)
    job = draft.job(placed.job)
    if known is None or known.ended or job is None:
        return
    ended = replace(known, ended="placed")
    draft.reservations[placed.job] = ended
    _tell_spared(draft, replace(ended, ended="it has started elsewhere"))
    taken = [one for one in known.victims if not is_untold(draft, one) and one.was_stopped]
    if not taken:
        return
    receipt = Receipt(
        job=job.id,
        attempt=job.attempt,
        kind="taking",
        cause=Cause.NONE,
        culprit="",
        evidence=all_taken_text(draft, taken, known.shape.gpu_millis),
        steps_lost=sum(one.steps_lost or 0 for one in taken),
        gpu_seconds_lost=sum(one.gpu_seconds_lost for one in taken),
        seen_at=draft.now.wall,
        others=tuple(one.job for one in taken),
    )
    draft.receipts.append(receipt)
    attempt = draft.attempt(job.id)
    if attempt is not None and any(one.gone_at is None for one in taken):
        draft.put_attempt(replace(attempt, open_receipt=receipt))
    text = f"{job.spec.name}: {receipt.text}"
    draft.tell("receipt", text, job=job.id, attempt=job.attempt)


def kept_reasons(draft: Draft, reasons: Reasons) -> Reasons:
    """Jobs with reserved seats say so with the names of the others."""
    over = {}
    for one in standing_reservations(draft):
        if one.job in reasons and one.latest_start is None:
            see = tuple(f"run: corral why {victim.job}" for victim in one.victims[:1])
            text = kept_text(draft, one)
            over[one.job] = Reason(code="Preempting", sentence=text, suggestions=see)
    return reasons.instead(over) if over else reasons
