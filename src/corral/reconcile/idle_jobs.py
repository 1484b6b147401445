"""Jobs that hold GPUs and run nothing on them: since when they are idle, and what their
queue's idle rule does."""

from dataclasses import replace
from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.event_kind import EventKind
from corral.domain.idle_policy import IdleRule
from corral.domain.job import Job
from corral.domain.job_states import JobEvent, JobState, StopWhy
from corral.domain.reason_code import ReasonCode
from corral.domain.time_point import moment_text
from corral.domain.units import duration_text
from corral.reconcile.changeset import Draft

NOTED_SECONDS: Final = 60.0  # what is shorter is not written down


def see_idle(draft: Draft, job: Job) -> None:
    """Warn about a job that is idle for longer than its queue's rule allows, and later
    suspend it.

    If no sensor values have arrived since this head started, the previous state still
    holds.
    """
    attempt = draft.attempt(job.id)
    if job.state != JobState.RUNNING or attempt is None:
        return
    attempt = _update_idle_since(draft, attempt)
    rule = _idle_rule(draft, job)
    if rule is None or attempt.idle_since is None:
        return
    idle_seconds = draft.now.wall - attempt.idle_since
    if rule.warn_seconds is not None and attempt.idle_warned_at is None:
        if idle_seconds >= rule.warn_seconds:
            _warn_idle_job(draft, job, attempt, rule)
        return
    if rule.reclaim_seconds is not None and idle_seconds >= rule.reclaim_seconds:
        warned_at = attempt.idle_warned_at or attempt.idle_since
        if draft.now.wall - warned_at >= rule.notice_seconds:
            _suspend_idle_job(draft, job, attempt.idle_since)


def _update_idle_since(draft: Draft, attempt: Attempt) -> Attempt:
    """Return the attempt with the time since which its GPUs are idle, according to
    sensors; None if they are in use."""
    key = (attempt.job, attempt.number)
    if key not in draft.facts.idle:
        return attempt
    idle_since = draft.facts.idle[key]
    if idle_since is None and attempt.idle_since is not None:
        return draft.put_attempt(replace(attempt, idle_since=None, idle_warned_at=None))
    is_new = idle_since is not None and attempt.idle_since is None
    if (
        idle_since is not None
        and is_new
        and draft.now.wall - idle_since >= NOTED_SECONDS
    ):
        return draft.put_attempt(replace(attempt, idle_since=idle_since))
    return attempt


def _idle_rule(draft: Draft, job: Job) -> IdleRule | None:
    """Return the idle rule of the job's queue, else of the nearest queue above it."""
    rules = (queue.idle for queue in reversed(draft.tree.path(job.spec.queue)))
    return next((rule for rule in rules if rule is not None), None)


def _warn_idle_job(draft: Draft, job: Job, attempt: Attempt, rule: IdleRule) -> None:
    draft.put_attempt(replace(attempt, idle_warned_at=draft.now.wall))
    text = f"{job.spec.name} {_idle_text(attempt.idle_since or draft.now.wall)}"
    if rule.reclaim_seconds is not None:
        text += (
            f"; it will be suspended in {duration_text(rule.notice_seconds)} unless it "
            "uses its GPUs again"
        )
    draft.tell(EventKind.IDLE_WARNED, text, job=job.id, attempt=attempt.number)


def _suspend_idle_job(draft: Draft, job: Job, since: float) -> None:
    reason = (
        f"the job {_idle_text(since)}, longer than queue {job.spec.queue} allows; to "
        f"continue it: corral resume {job.id}"
    )
    draft.move(
        job,
        JobEvent.ASKED_SUSPEND,
        reason=reason,
        code=ReasonCode.IDLE,
        why=StopWhy.SUSPEND,
    )


def _idle_text(since: float) -> str:
    return f"has run nothing on its GPUs since {moment_text(since)}"
