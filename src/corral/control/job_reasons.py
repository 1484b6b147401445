"""Texts of the reason for a job's state, for jobs whose reason the scheduler has not
given."""

from dataclasses import replace
from typing import Final

from corral.control.hang_texts import hang_text
from corral.control.kept_content import fetch_text
from corral.domain.ids import JobId
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.observed_state import Facts
from corral.domain.queue_policy import Policy
from corral.domain.reason_code import ReasonCode
from corral.domain.run_history import stem_of
from corral.domain.units import duration_text
from corral.domain.world import World
from corral.reconcile.changeset import Draft, Now
from corral.reconcile.dependencies import (
    held_by,
    unmet,
    waits_for,
)
from corral.schedule import Learned
from corral.schedule.prediction.runtime_model import Class
from corral.schedule.waiting import Reason

# what a held job waits for by itself
_HOLDS: Final = (ReasonCode.DEPENDENCY, ReasonCode.BEGIN_TIME, ReasonCode.RETRY_DELAY)
NO_FACTS: Final = Facts()
UNSEEN = (
    "the next scheduling pass, within a second, places the job or states why it waits"
)


def planned_reason(draft: Draft, job: Job) -> Reason:
    """Return why a job of a dry run would be held after its submission. Jobs of the
    same submission have no id yet, so the text uses their names."""
    if job.is_final:  # what it waits for can no longer happen
        return _own_reason(job)
    # what would help names a job that is not there yet
    if job.reason_code != ReasonCode.DEPENDENCY:
        return replace(held_by(draft, job) or _own_reason(job), suggestions=())
    waits = [
        replace(dependency, job=JobId(dependency.name), name="")
        if dependency.job in draft.jobs
        else dependency
        for dependency in unmet(draft, job.spec)
    ]
    return Reason(code=job.reason_code, sentence=waits_for(waits))


def _own_reason(job: Job) -> Reason:
    return Reason(code=job.reason_code, sentence=job.reason)


def assumed_text(world: World, job: Job, learned: Learned | None) -> str:
    """Return a text of the run time that the queue assumes for a waiting job, and what
    the assumption is based on; "" if the queue does not order jobs by run time."""
    spec = job.spec
    if job.state != JobState.QUEUED or learned is None:
        return ""
    if world.queues.policy_of(spec.queue) != Policy.SJF:
        return ""
    size, limit = (
        Class(spec.queue, spec.shapes[0].gpu_millis),
        spec.max_duration_seconds,
    )
    kin = learned.nearest_kin(job.owner, stem_of(spec.name), size)
    if kin is not None and (limit is None or kin.mean_seconds <= limit):
        jobs = f"{kin.ended} ended jobs" if kin.ended > 1 else "one ended job"
        return f"{duration_text(kin.mean_seconds)}, judging by {jobs} {kin.alike}"
    if limit is not None:
        which = "no job has ended yet" if kin is None else "similar jobs took longer"
        return f"{duration_text(limit)}, the limit of the job: {which}"
    return (
        "unknown, because no job has ended yet and this one has no limit; it waits behind "
        "jobs with a known run time"
    )


def reason_held(
    world: World,
    job: Job,
    now: Now,
    facts: Facts = NO_FACTS,
    *,
    stopped: str = "",
    said: str = "",
) -> Reason:
    """Return the reason for a job's state without a result of a scheduling pass.

    For a held job: what it still waits for. For a suspended job: how to continue it.
    For a queued job: that it was not considered yet.

    Args:
        stopped: why the head places no jobs now; "" if it does.
        said: why the engine has not started a placed job; "" if unknown.
        facts: reports of the nodes, which may be fetching the model of a placed job.
    """
    if job.state == JobState.QUEUED:
        sentence = stopped or ": ".join(filter(None, (job.reason, UNSEEN)))
        return Reason(
            code=ReasonCode.STOPPED if stopped else ReasonCode.NEW, sentence=sentence
        )
    hang = hang_text(world, facts, job, now, whole=False)
    if hang:
        stacks = f"to see where its ranks stand: corral debug stacks {job.id}"
        return Reason(code=ReasonCode.HANG, sentence=hang, suggestions=(stacks,))
    fetching = fetch_text(world, facts, job) if job.state == JobState.STARTING else ""
    if fetching:
        return Reason(code=ReasonCode.FETCHING_MODEL, sentence=fetching)
    if job.state == JobState.STARTING and said:
        return Reason(code=ReasonCode.ENGINE, sentence=said)
    if job.state == JobState.SUSPENDED:
        goes_on = f"to resume it: corral resume {job.id}"
        return replace(_own_reason(job), suggestions=(goes_on,))
    if job.state != JobState.HELD or job.reason_code not in _HOLDS:
        return _own_reason(job)
    return held_by(Draft(world, Facts(), now), job) or _own_reason(job)
