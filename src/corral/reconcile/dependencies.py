"""Conditions of a job before its placement: other jobs (dependencies) and times. A job
that has not begun in time is ended here."""

from collections.abc import Sequence as Seq
from typing import Final

from corral.domain.cause import Cause
from corral.domain.job import After, Job, JobSpec, On
from corral.domain.job_states import FINAL, JobEvent, JobState
from corral.domain.reason_code import ReasonCode
from corral.domain.receipt import Receipt, ReceiptKind
from corral.domain.retry_delay import WINDOW_SECONDS
from corral.domain.time_point import moment_text
from corral.domain.units import duration_text
from corral.reconcile.changeset import Draft
from corral.schedule.waiting import Reason

MOST_NAMED: Final = 3  # jobs that a sentence names one by one
_REACHED = {
    On.DONE: frozenset({JobState.DONE}),
    On.FAILED: frozenset({JobState.FAILED}),
    On.ENDED: frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED}),
}


_OVER: Final = frozenset({None, *_REACHED[On.ENDED]})  # None: forgotten


def held_by(draft: Draft, job: Job) -> Reason | None:
    """Return why the job may not be placed yet: a dependency, time or delay. None: it
    may."""
    if is_delayed(job):
        return _delay_reason(draft, job)
    if waits := unmet(draft, job.spec):
        return Reason(
            code=ReasonCode.DEPENDENCY,
            sentence=waits_for(waits),
            suggestions=(f"see: corral why {waits[0].job}",),
        )
    begins_at = job.begins_at
    if begins_at is not None and draft.now.wall < begins_at:
        return Reason(
            code=ReasonCode.BEGIN_TIME,
            sentence=f"the job begins in {duration_text(begins_at - draft.now.wall)}, at "
            f"{moment_text(begins_at)}",
            suggestions=(
                f"to begin sooner: corral stop {job.id}, and submit the job without "
                "begin",
            ),
        )
    return None


def is_delayed(job: Job) -> bool:
    """Whether the job is held for the delay of a retry."""
    return job.state == JobState.HELD and job.reason_code == ReasonCode.RETRY_DELAY


def _delay_reason(draft: Draft, job: Job) -> Reason | None:
    """Return the reason while the delay of a retry lasts; None once it is over, or if
    the clock was set back to before its beginning."""
    now = draft.now.wall
    if job.retry_at is None or not job.since <= now < job.retry_at:
        return None
    delay_text = duration_text(job.retry_at - now)
    return Reason(
        code=ReasonCode.RETRY_DELAY,
        sentence=f"{job.reason}; the next attempt waits {delay_text}, until "
        f"{moment_text(job.retry_at)}, because {len(job.fault_times)} faults of the "
        f"cluster ended the job within {duration_text(WINDOW_SECONDS)}",
        suggestions=(f"to begin now: corral resume {job.id}",),
    )


def release(draft: Draft, job: Job) -> None:
    """Release a job that is held by `after` or `begin` once these conditions are met.
    If a condition can never be met, end the job. A job that is held for the delay of a
    retry is released after the delay."""
    if is_delayed(job):
        if _delay_reason(draft, job) is None:
            draft.move(
                job, JobEvent.RELEASED, reason=job.reason, code=ReasonCode.REQUEUED
            )
        return
    is_waiting = job.state == JobState.HELD and job.reason_code in (
        ReasonCode.DEPENDENCY,
        ReasonCode.BEGIN_TIME,
        "",
    )
    suspended_first = job.state == JobState.SUSPENDED and job.attempt == 0
    waits = job.spec.after or job.spec.begin
    if not waits or not (is_waiting or suspended_first):
        return
    hopeless = never(draft, job.spec)
    if hopeless is not None:
        state = draft.state_of(hopeless.job)
        reason = f"{waits_for([hopeless])}, which can no longer happen"
        reason += f": {hopeless.job} is {state}" if state is not None else ""
        draft.move(
            job,
            JobEvent.NEVER,
            reason=reason,
            code=ReasonCode.DEPENDENCY_NEVER_SATISFIED,
        )
    elif is_waiting and held_by(draft, job) is None:
        draft.move(job, JobEvent.RELEASED)


def end_if_too_late(draft: Draft, job: Job, why: Reason | None) -> None:
    """End a job that has not run by its start_by, with a receipt. `why`: the last
    reason for its wait."""
    starts_by = job.starts_by
    is_waiting = job.state.is_waiting
    if not is_waiting or starts_by is None or job.started_at is not None:
        return
    if draft.now.wall < starts_by:
        return
    last_reason = (
        why or held_by(draft, job) or Reason(code=job.reason_code, sentence=job.reason)
    )
    cause = f"; {last_reason.sentence}" if last_reason.sentence else ""
    reason = f"the job did not start by its start_by, {moment_text(starts_by)}{cause}"
    draft.receipts.append(
        Receipt(
            job=job.id,
            attempt=job.attempt,
            kind=ReceiptKind.DEADLINE,
            cause=Cause.REQUEST,
            culprit="start_by",
            evidence=reason,
            steps_lost=None,
            gpu_seconds_lost=0.0,
            seen_at=draft.now.wall,
        )
    )
    draft.move(job, JobEvent.TOO_LATE, reason=reason, code=ReasonCode.DEADLINE)


def waits_for(afters: Seq[After]) -> str:
    """Return a sentence that names these dependencies, only the first few of many; ""
    for none."""
    if not afters:
        return ""
    names = list(dict.fromkeys(map(str, afters)))
    remainder_text = (
        f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    )
    return f"the job waits for {', '.join(names[:MOST_NAMED])}{remainder_text}"


def unmet(draft: Draft, spec: JobSpec) -> list[After]:
    """Return the dependencies that the job still waits for. If any one job of an array
    must fail, return for that array the first job that has not ended, or the last job
    if none has failed."""
    waits = [
        dependency
        for dependency in spec.after
        if not dependency.any_of_array and not _is_dependency_met(draft, dependency)
    ]
    arrays: dict[str, list[After]] = {}
    for array_dependency in spec.after:
        if array_dependency.any_of_array:
            arrays.setdefault(array_dependency.of, []).append(array_dependency)
    return waits + [
        dependency
        for array_conditions in arrays.values()
        for dependency in _unmet_of(draft, array_conditions)
    ]


def _unmet_of(draft: Draft, parts: Seq[After]) -> Seq[After]:
    states = [draft.state_of(dependency.job) for dependency in parts]
    afters = (
        candidate
        for candidate, state in zip(parts, states, strict=True)
        if state not in _OVER
    )
    waits = next(afters, None)
    if waits is not None:
        return (waits,)
    return () if JobState.FAILED in states else parts[-1:]


def never(draft: Draft, spec: JobSpec) -> After | None:
    """Return a dependency of the job that can no longer be met; None if each can be."""
    for dependency in unmet(draft, spec):
        state = draft.state_of(dependency.job)
        job = draft.job(dependency.job)
        if (
            state is None
            or state in _REACHED[On.ENDED]
            or (job is not None and job.is_final)
        ):
            return dependency
    return None


def _is_dependency_met(draft: Draft, after: After) -> bool:
    state = draft.state_of(after.job)
    # as Slurm's `after`: started, or over without ever having been
    if after.on == On.STARTED:
        job = draft.job(after.job)
        started = job is not None and job.started_at is not None
        return started or state == JobState.RUNNING or state in FINAL
    return state in _REACHED[after.on]
