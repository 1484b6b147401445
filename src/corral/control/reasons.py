"""Why a job is where it is, where no pass of the scheduler says so."""

from dataclasses import replace

from corral.domain.facts import Facts
from corral.domain.ids import JobId
from corral.domain.job import Job
from corral.domain.moves import JobState
from corral.domain.world import World
from corral.reconcile.draft import Draft, Now
from corral.reconcile.waits import BEGIN_TIME, DEPENDENCY, held_by, waits_for
from corral.schedule.waiting import Reason

UNSEEN = "the next pass places it, or says what it waits for; there is one a second"


def planned_reason(draft: Draft, job: Job) -> Reason:
    """Why it would be held. Jobs of the same submission have no id yet: they go by their names."""
    if job.reason_code != DEPENDENCY:
        return held_by(draft, job) or _own_reason(job)
    waits = [
        replace(after, job=JobId(after.name), name="") if after.job in draft.jobs else after
        for after in job.spec.after
    ]
    return Reason(code=job.reason_code, sentence=waits_for(waits))


def _own_reason(job: Job) -> Reason:
    return Reason(code=job.reason_code, sentence=job.reason)


def reason_held(world: World, job: Job, now: Now, *, stopped: str = "") -> Reason:
    """Of what a held job waits for, only what has not happened yet; how a suspended one goes on;
    and that no pass has looked at one in line. `stopped`: why the head places nothing."""
    if job.state == JobState.QUEUED:
        sentence = stopped or ": ".join(filter(None, (job.reason, UNSEEN)))
        return Reason(code="Stopped" if stopped else "New", sentence=sentence)
    if job.state == JobState.SUSPENDED:
        goes_on = f"it goes on with: corral resume {job.id}"
        return replace(_own_reason(job), suggestions=(goes_on,))
    if job.state != JobState.HELD or job.reason_code not in (DEPENDENCY, BEGIN_TIME):
        return _own_reason(job)
    return held_by(Draft(world, Facts(), now), job) or _own_reason(job)
