"""A share of the cluster for the jobs that have waited longest, so that no job starves.

The share grows with the longest wait. One job after another may use it for a fixed
time, its turn, in which it may not be preempted; the job that has waited longest is
first. If the share is too small for a turn now, the turn comes later, so a gang larger
than the share also gets one. Old jobs are not all promoted: promoted jobs would preempt
one another, and a long queue would become first come, first served.
"""

from typing import Any, Final, NamedTuple

from corral.schedule.arrays.compiled import column, compiled
from corral.schedule.columns.gpu_pool import Pool
from corral.schedule.columns.job_groups import (
    AT_RUNNING,
    AT_WAITING,
    NONE,
    WAITING,
    JobColumns,
    waited,
)
from corral.schedule.columns.order import ColumnPolicy

# the share does not save up more than it earns in this time
SAVED_SECONDS: Final = 86_400.0
CREDIT, SHARE, SEEN, NEXT = 0, 1, 2, 3


class Ageing(NamedTuple):
    """State of the rule that reserves a share of the cluster for the jobs that have
    waited longest.

    `number` holds four values: the unused credit in GPU-seconds, the present share (0
    to 1), the time at which both were last updated, and the time of the next check.
    `elder` is the waiting job that may start next because of its age; -1 if there is
    none.
    """

    number: Any
    elder: Any


def ageing_of() -> Ageing:
    """Return the state of ageing before any job has waited."""
    return Ageing(number=column(4, "float"), elder=column(1, "int", NONE))


@compiled
def look_for_elder(
    policy: ColumnPolicy, jobs: JobColumns, pool: Pool, ageing: Ageing, now: float
) -> int:
    """Return the waiting job that may start next because it has waited longest (the
    elder). Return -1 if age does not count in this policy, no job is old enough, the
    credit of old jobs is used up, or the next check is not due yet."""
    if policy.elder_scale_seconds <= 0:
        return NONE
    elder = ageing.elder[0]
    if elder != NONE and jobs.state[elder] == WAITING:
        return int(elder)
    ageing.elder[0] = NONE
    if now < ageing.number[NEXT] or jobs.count[AT_WAITING] == 0:
        return NONE
    ageing.number[NEXT] = now + policy.elder_tick_seconds
    elder = _oldest_waiting_job(policy, jobs, now)
    ageing.number[SHARE] = 0.0
    if elder == NONE:
        return NONE
    wait = waited(jobs, elder, now)
    ageing.number[SHARE] = min(
        policy.elder_most, (wait / policy.elder_scale_seconds) ** 2
    )
    if ageing.number[CREDIT] < 0:
        return NONE
    ageing.elder[0] = elder
    return int(elder)


@compiled
def earn(
    policy: ColumnPolicy, jobs: JobColumns, pool: Pool, ageing: Ageing, now: float
) -> None:
    """Update the credit of old jobs: it grows with their share of the cluster, and
    shrinks with the GPUs of protected jobs. Call this before ended jobs are removed."""
    if policy.elder_scale_seconds <= 0:
        return
    seconds, spent = now - ageing.number[SEEN], 0.0
    for running_index in range(jobs.count[AT_RUNNING]):
        job = jobs.running[running_index]
        protected = min(now, jobs.elder_until[job]) - max(
            ageing.number[SEEN], jobs.started[job]
        )
        spent += max(0.0, protected) * jobs.gpus[job]
    earned = ageing.number[SHARE] * pool.gpus
    ageing.number[CREDIT] = min(
        SAVED_SECONDS * earned, ageing.number[CREDIT] + earned * seconds - spent
    )
    ageing.number[SEEN] = now


@compiled
def _oldest_waiting_job(policy: ColumnPolicy, jobs: JobColumns, now: float) -> int:
    oldest, longest = NONE, policy.elder_seconds
    for waiting_index in range(jobs.count[AT_WAITING]):
        job = jobs.waiting[waiting_index]
        wait = waited(jobs, job, now)
        if wait > longest or (wait == longest and oldest != NONE and job < oldest):
            oldest, longest = job, wait
    return oldest


@compiled
def protect(
    policy: ColumnPolicy, jobs: JobColumns, ageing: Ageing, job: int, now: float
) -> None:
    """Protect the job, which started because of its age, from preemption for one turn.
    The next oldest job is then searched for at once."""
    jobs.elder_until[job] = now + policy.elder_turn_seconds
    ageing.elder[0] = NONE
    ageing.number[NEXT] = now
