"""Progress of a job from one failed attempt to the next."""

from dataclasses import replace
from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.cause import Cause
from corral.domain.job import Job

CRASH_LOOP: Final = 3  # user-class failures in a row without progress


def has_progressed(job: Job, attempt: Attempt) -> bool:
    """Return whether the ended attempt went further than all attempts before it.

    A program without a checkpoint rule begins to count at 0 in each attempt, even if it
    goes on from files of its own. It counts as a repeated failure only if it ends at the
    same step as the failure before.
    """
    reached = attempt.last_step if attempt.last_step is not None else -1
    counts_anew = job.spec.checkpoint is None
    is_elsewhere = counts_anew and reached > 0 and reached != job.failed_step
    return reached > job.best_step or is_elsewhere


def may_have_progressed(job: Job, attempt: Attempt) -> bool:
    """Return whether the ended attempt has progressed, or may have. The step of a
    program without a checkpoint rule proves little, so that its second failure at the
    same step counts too; the third one is a crash loop."""
    counts_anew = job.spec.checkpoint is None and (attempt.last_step or 0) > 0
    return has_progressed(job, attempt) or (
        counts_anew and job.fruitless + 1 < CRASH_LOOP
    )


def with_reached_step(job: Job, attempt: Attempt) -> Job:
    """Return the job with the step that the ended attempt reached."""
    reached = attempt.last_step if attempt.last_step is not None else -1
    failed_step = attempt.last_step if attempt.cause is Cause.USER else job.failed_step
    return replace(job, best_step=max(job.best_step, reached), failed_step=failed_step)
