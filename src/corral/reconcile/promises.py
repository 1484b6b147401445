"""Promised starts: who holds seats until when, what is told, and what has become of it."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.ids import JobId
from corral.domain.job import Job, JobSpec
from corral.domain.moment import moment_text
from corral.domain.moves import ON_NODES, JobState
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.use import Reservation
from corral.reconcile.attempts import ran_seconds
from corral.reconcile.draft import Draft
from corral.reconcile.giving import gpus, name_of
from corral.reconcile.preempt import standing_reservations
from corral.reconcile.use import types_of
from corral.schedule import Decision, Ending, Promise, Reasons
from corral.schedule.limits import holding_of
from corral.schedule.waiting import Reason

# A limit counts from when the gang is up, and its seats come free once it is seen gone.
START_SECONDS: Final = 60.0
GONE_SECONDS: Final = 10.0
MOST_NAMED: Final = 3
SAME_SECONDS: Final = 1.0  # a start that is put off by no more is the same


def holds_seconds(spec: JobSpec) -> float | None:
    """So long a job holds its seats at the most, once it is placed; None: nobody knows."""
    limit = spec.max_duration_seconds
    return None if limit is None else START_SECONDS + limit + spec.grace_seconds + GONE_SECONDS


def endings_of(draft: Draft) -> list[Ending]:
    """Those who hold seats now and have a limit, or are coming to their end."""
    types, found = types_of(draft), []
    for job in draft.in_states(*ON_NODES):
        attempt = draft.attempt(job.id)
        until = inf if attempt is None else _until(draft, job, attempt)
        if attempt is None or until == inf:
            continue
        spec = job.spec
        seats = tuple(one.seat for one in draft.seats_of(attempt) if not one.charged)
        holding = holding_of(spec.queue, job.owner, seats, types, preemptible=spec.preemptible)
        found.append(
            Ending(
                job=job.id,
                seats=seats,
                until=until,
                holding=holding,
                kin=spec.kin,
                apart_from=spec.place.apart_from,
            )
        )
    return found


def _until(draft: Draft, job: Job, attempt: Attempt) -> float:
    gone_seconds = job.spec.grace_seconds + GONE_SECONDS
    if job.state in (JobState.STOPPING, JobState.RECOVERING):
        return job.since + gone_seconds
    limit = job.spec.max_duration_seconds
    if limit is None:
        return inf
    if attempt.running_at is None:
        return attempt.placed_at + START_SECONDS + limit + gone_seconds
    return draft.now.wall + max(0.0, limit - ran_seconds(draft, attempt)) + gone_seconds


def promised_of(draft: Draft) -> list[Promise]:
    """What stands."""
    return [
        Promise(
            job=one.job, shape=one.shape, seats=one.seats, start=one.latest_start, after=one.after
        )
        for one in standing_reservations(draft)
        if one.latest_start is not None
    ]


def take_promises(draft: Draft, decision: Decision) -> None:
    """Write down who is promised what from now on, and tell those for whom it is news."""
    known = {one.job: one for one in standing_reservations(draft) if one.latest_start is not None}
    placed = {one.job for one in decision.placed}
    for promise in decision.promised:
        before = known.pop(promise.job, None)
        row = Reservation(
            job=promise.job,
            shape=promise.shape,
            seats=promise.seats,
            victims=(),
            since=before.since if before is not None else draft.now.wall,
            latest_start=promise.start,
            after=promise.after,
        )
        if before is None or _is_news(before, row):
            draft.reservations[row.job] = row
            _tell(draft, before, row)
    for one in known.values():
        if one.job not in placed:
            draft.reservations[one.job] = replace(one, ended="it can be kept no longer")


def _is_news(before: Reservation, row: Reservation) -> bool:
    """Other seats, others to wait for, or another moment. When a limit is reached is counted anew
    at each look, from clocks that do not agree to the last digit."""
    assert before.latest_start is not None
    assert row.latest_start is not None
    moved_seconds = abs(row.latest_start - before.latest_start)
    same = replace(row, latest_start=before.latest_start) == before
    return not same or moved_seconds > SAME_SECONDS


def _tell(draft: Draft, before: Reservation | None, row: Reservation) -> None:
    """A first promise, and one that had to be moved: somebody has outlasted a limit, or a node or
    a queue has changed."""
    assert row.latest_start is not None
    if before is None:
        draft.tell("promised", f"{name_of(draft, row.job)}: {_text(draft, row)}", job=row.job)
    elif before.latest_start is not None and row.latest_start > before.latest_start + SAME_SECONDS:
        late = f"{name_of(draft, row.job)} cannot start when it was promised to"
        draft.tell("promise_moved", f"{late}; {_text(draft, row)}", job=row.job)


def promise_reasons(draft: Draft, reasons: Reasons) -> Reasons:
    """Jobs with a promise say so with the names of those they wait for."""
    over = {
        one.job: Reason(
            code="Promised",
            sentence=_text(draft, one),
            suggestions=tuple(f"see: corral why {job}" for job in one.after[:1]),
        )
        for one in standing_reservations(draft)
        if one.latest_start is not None and one.job in reasons
    }
    return reasons.instead(over) if over else reasons


def _text(draft: Draft, one: Reservation) -> str:
    assert one.latest_start is not None
    millis = one.shape.gpu_millis
    verb = "are" if millis > MILLIS_PER_GPU else "is"
    kept = f"{gpus(millis) if millis else one.shape} {verb} kept for it"
    names = _names(draft, one.after)
    limit = "reaches its limit" if len(one.after) == 1 else "reach their limits"
    when = f", when {names} {limit}" if names else ""
    return f"it starts at {moment_text(one.latest_start)} at the latest{when}; {kept}"


def _names(draft: Draft, jobs: Sequence[JobId]) -> str:
    names = [name_of(draft, job) for job in jobs[:MOST_NAMED]]
    if len(jobs) > MOST_NAMED:
        return f"{', '.join(names)} and {len(jobs) - MOST_NAMED} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
