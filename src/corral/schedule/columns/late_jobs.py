"""A share of the cluster for the jobs that are latest, so that no job starves.

The share grows with the greatest lateness. One job after another may use it for its
turn, in which it may not be preempted; the latest job is first. If the share is too
small for a turn now, the turn comes later, so a gang larger than the share also gets
one. `schedule.order.late_jobs` defines lateness and turns.
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
from corral.schedule.order.late_jobs import GRACE_SECONDS

# the share does not save up more than it earns in this time
SAVED_SECONDS: Final = 86_400.0
CREDIT, SHARE, SEEN, NEXT = 0, 1, 2, 3


class LateColumns(NamedTuple):
    """State of the share for late jobs. `number` holds the unused credit in GPU-seconds,
    the share (0 to 1), the time of their last update, and the time of the next check.

    `late_job` is the waiting job that may start next because it is late, or -1.
    """

    number: Any
    late_job: Any


def late_columns_of() -> LateColumns:
    """Return the state before any job has waited."""
    return LateColumns(number=column(4, "float"), late_job=column(1, "int", NONE))


@compiled
def find_late_job(
    policy: ColumnPolicy, jobs: JobColumns, pool: Pool, late: LateColumns, now: float
) -> int:
    """Return the waiting job that may start next because it is late, or -1."""
    if policy.late_scale <= 0:
        return NONE
    late_job = late.late_job[0]
    if late_job != NONE and jobs.state[late_job] == WAITING:
        return int(late_job)
    late.late_job[0] = NONE
    if now < late.number[NEXT] or jobs.count[AT_WAITING] == 0:
        return NONE
    late.number[NEXT] = now + policy.late_tick_seconds
    late_job = _latest_waiting_job(policy, jobs, now)
    late.number[SHARE] = 0.0
    if late_job == NONE:
        return NONE
    lateness = _lateness_of(jobs, late_job, now)
    late.number[SHARE] = min(policy.late_share, (lateness / policy.late_scale) ** 2)
    if late.number[CREDIT] < 0:
        return NONE
    late.late_job[0] = late_job
    return int(late_job)


@compiled
def earn(
    policy: ColumnPolicy, jobs: JobColumns, pool: Pool, late: LateColumns, now: float
) -> None:
    """Update the credit of late jobs: it grows with their share of the cluster, and
    shrinks with the GPUs of protected jobs. Call this before ended jobs are removed."""
    if policy.late_scale <= 0:
        return
    seconds, spent = now - late.number[SEEN], 0.0
    for running_index in range(jobs.count[AT_RUNNING]):
        job = jobs.running[running_index]
        protected = min(now, jobs.protected_until[job]) - max(
            late.number[SEEN], jobs.started[job]
        )
        spent += max(0.0, protected) * jobs.gpus[job]
    earned = late.number[SHARE] * pool.gpus
    late.number[CREDIT] = min(
        SAVED_SECONDS * earned, late.number[CREDIT] + earned * seconds - spent
    )
    late.number[SEEN] = now


@compiled
def _lateness_of(jobs: JobColumns, job: int, now: float) -> float:
    return float(waited(jobs, job, now) / (jobs.attained[job] + GRACE_SECONDS))


@compiled
def _latest_waiting_job(policy: ColumnPolicy, jobs: JobColumns, now: float) -> int:
    """Return the latest of the jobs that have waited for `late_seconds`, or -1."""
    latest_job, greatest = NONE, 0.0
    for waiting_index in range(jobs.count[AT_WAITING]):
        job = jobs.waiting[waiting_index]
        if waited(jobs, job, now) < policy.late_seconds:
            continue
        lateness = _lateness_of(jobs, job, now)
        if lateness > greatest or (lateness == greatest and job < latest_job):
            latest_job, greatest = job, lateness
    return latest_job


@compiled
def protect(
    policy: ColumnPolicy, jobs: JobColumns, late: LateColumns, job: int, now: float
) -> None:
    """Protect the job, which started because it was late, from preemption for one turn.
    The next late job is then searched for at once."""
    turn_seconds = max(jobs.attained[job], GRACE_SECONDS)
    jobs.protected_until[job] = now + min(turn_seconds, policy.late_turn_seconds)
    late.late_job[0] = NONE
    late.number[NEXT] = now
