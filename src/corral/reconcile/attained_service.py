"""Attained service of a job: the seconds of its attempts whose work was not lost."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.ids import QueueName
from corral.domain.job import Job
from corral.domain.resources import Shape
from corral.domain.run_history import Ran, stem_of
from corral.domain.world import World
from corral.reconcile.changeset import Draft
from corral.schedule.prediction.runtime_model import Class, Ended

# from a start to the first step, before it was measured
DEFAULT_RESTART_SECONDS: Final = 60.0


def serves_since(attempt: Attempt) -> float | None:
    """Return when the attempt's service began (wall clock): when its ranks were up and
    had resumed from the save. The usual restart time is assumed until the first step is
    reported. None before the ranks are up."""
    if attempt.resume_step is None or attempt.running_at is None:
        return attempt.running_at
    if attempt.first_step_at is not None:
        return attempt.first_step_at
    return attempt.running_at + DEFAULT_RESTART_SECONDS


def attempt_seconds(attempt: Attempt, until: float) -> float:
    """Return the service of one attempt in seconds until the given wall-clock time."""
    begun = serves_since(attempt)
    return 0.0 if begun is None else max(0.0, until - begun)


def ran_by(job: Job, attempt: Attempt, until: float) -> float:
    """Return the seconds that the job has run until the given wall-clock time,
    including this attempt."""
    begun = attempt.running_at if attempt.running_at is not None else attempt.placed_at
    return job.ran_seconds + max(0.0, until - begun)


def with_all(job: Job, attempt: Attempt, until: float) -> Job:
    """Return the job with the service of this whole attempt added, as is done when the
    job is over."""
    return replace(
        job, served_seconds=job.served_seconds + attempt_seconds(attempt, until)
    )


def with_kept(draft: Draft, job: Job, attempt: Attempt) -> Job:
    """Return the job with the lasting part of the attempt's service added, as is done
    when another attempt follows. It is the service up to the newest save; without a
    save, nothing is added."""
    saves = draft.saves_of(job.id)
    ended_at = attempt.ended_at if attempt.ended_at is not None else draft.now.wall
    if not saves:
        return job
    is_whole = attempt.last_step is not None and attempt.last_step <= saves[-1].step
    return with_all(job, attempt, ended_at if is_whole else min(ended_at, saves[-1].at))


def unsaved_seconds(draft: Draft, attempt: Attempt) -> float:
    """Return how long the attempt has worked since its newest committed save."""
    if attempt.running_at is None:
        return 0.0
    saves = draft.saves_of(attempt.job)
    unsaved_since = (
        max(attempt.running_at, saves[-1].at) if saves else attempt.running_at
    )
    return max(0.0, draft.now.wall - unsaved_since)


def restart_seconds(attempt: Attempt) -> float:
    """Return the seconds from the placement of this attempt to its first training step.
    Before that step is reported, return a default."""
    if attempt.first_step_at is None:
        return DEFAULT_RESTART_SECONDS
    return max(0.0, attempt.first_step_at - attempt.placed_at)


# -- what is learned of it -------------------------------------------------------------------------


def ended_of(job: Job) -> Ended | None:
    """Return the record from which forecasts learn about an ended job; None for a job
    that has not ended or never ran."""
    if not job.is_final or job.served_seconds <= 0:
        return None
    spec = job.spec
    return Ended(
        job_class=_class_of_shape(spec.queue, spec.shapes[0]),
        user=job.owner,
        stem=stem_of(spec.name),
        seconds=job.served_seconds,
    )


def ended_before(runs: Iterable[Ran]) -> list[Ended]:
    """Return the records from which run times are predicted, made from stored runs, in
    the order in which the jobs ended."""
    return [
        Ended(
            job_class=_class_of_shape(run.queue, run.shape),
            user=run.user,
            stem=run.stem,
            seconds=run.served_seconds,
        )
        for run in sorted(runs, key=lambda one: (one.ended_at, one.job))
        if run.served_seconds > 0
    ]


def live_of(world: World, now: float) -> Iterator[tuple[Class, float]]:
    """Yield class and service, until now (wall clock), of each unfinished job that has
    received some service."""
    for id, attempt in world.attempts.items():
        job = world.jobs[id]
        seconds = job.served_seconds
        if attempt.ended_at is None:
            seconds += attempt_seconds(attempt, now)
        if seconds > 0:
            yield _class_of_shape(job.spec.queue, job.spec.shapes[0]), seconds


def _class_of_shape(queue: QueueName, shape: Shape) -> Class:
    return Class(queue, shape.nodes * shape.resources.gpu_millis)
