"""The service that a job has had: the seconds of its attempts that were not lost."""

from dataclasses import replace

from corral.domain.attempt import Attempt
from corral.domain.job import Job
from corral.reconcile.draft import Draft


def attempt_seconds(attempt: Attempt, until: float) -> float:
    """Service of one attempt by then (wall clock), without what it took to get back to a save."""
    begun = attempt.running_at
    if attempt.resume_step is not None and attempt.first_step_at is not None:
        begun = attempt.first_step_at
    return 0.0 if begun is None else max(0.0, until - begun)


def with_all(job: Job, attempt: Attempt, until: float) -> Job:
    """With the whole attempt: the job is over."""
    return replace(job, served_seconds=job.served_seconds + attempt_seconds(attempt, until))


def with_kept(draft: Draft, job: Job, attempt: Attempt) -> Job:
    """With what is not lost of an attempt that another follows: all up to its newest save."""
    saves = draft.saves_of(job.id)
    ended = attempt.ended_at if attempt.ended_at is not None else draft.now.wall
    if not saves:
        return job
    is_whole = attempt.last_step is not None and attempt.last_step <= saves[-1].step
    return with_all(job, attempt, ended if is_whole else min(ended, saves[-1].at))
