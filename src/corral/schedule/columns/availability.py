"""The availability profile: the number of GPUs neither held nor promised, from each
time on.

It is updated in place and not rebuilt. A promise removes GPUs for the job's maximum run
time, and an early end returns the remainder. Only a job that exceeds its limit causes a
recount.
"""

from typing import Final

from corral.schedule.arrays.compiled import compiled
from corral.schedule.columns.job_groups import AT_RUNNING, AT_WAITING, JobColumns
from corral.schedule.columns.promises import HAS_SLACK, STEPS, Promises

# jobs, from the head of the line, that an early end is offered to
BROUGHT_FORWARD: Final = 100


@compiled
def forget_past(promises: Promises, now: float) -> None:
    """Drop past steps of the profile, so that the first step is the present one.
    Neighbouring steps with the same value are merged."""
    steps = promises.count[STEPS]
    first_step = 0
    while first_step + 1 < steps and promises.at[first_step + 1] <= now:
        first_step += 1
    kept_count = 0
    for step in range(first_step, steps):
        if kept_count > 0 and promises.free[kept_count - 1] == promises.free[step]:
            continue
        promises.at[kept_count] = promises.at[step]
        promises.free[kept_count] = promises.free[step]
        kept_count += 1
    promises.at[0] = now
    promises.count[STEPS] = kept_count


@compiled
def add_free(promises: Promises, start: float, stop: float, gpus: int) -> None:
    """Add `gpus` to the free GPUs from `start` until `stop`; a negative number
    subtracts them."""
    if start >= stop:
        return
    first_step, end_step = _step_from(promises, start), _step_from(promises, stop)
    for step in range(first_step, end_step):
        promises.free[step] += gpus


@compiled
def _step_from(promises: Promises, at: float) -> int:
    """Return the step that begins at `at`, and create it if needed. `at` must not be
    before the first step."""
    step = promises.count[STEPS]
    while promises.at[step - 1] > at:
        step -= 1
    if promises.at[step - 1] == at:
        return int(step - 1)
    for row in range(promises.count[STEPS], step, -1):
        promises.at[row] = promises.at[row - 1]
        promises.free[row] = promises.free[row - 1]
    promises.at[step] = at
    promises.free[step] = promises.free[step - 1]
    promises.count[STEPS] += 1
    return int(step)


@compiled
def earliest(promises: Promises, gpus: int, seconds: float) -> float:
    """Return the earliest time from which on this many GPUs are free for this many
    seconds. In the last step, all GPUs are free."""
    start, step = 0, 0
    while step < promises.count[STEPS]:
        if step > start and promises.at[step] >= promises.at[start] + seconds:
            break
        if promises.free[step] < gpus:
            start = step + 1
        step += 1
    return float(promises.at[start])


@compiled
def promise(promises: Promises, jobs: JobColumns, job: int) -> None:
    """Promise the job the earliest start that breaks no other promise."""
    start_time = earliest(promises, jobs.gpus[job], jobs.limit[job])
    promises.starts_at[job] = start_time
    add_free(promises, start_time, start_time + jobs.limit[job], -jobs.gpus[job])


@compiled
def bring_forward(promises: Promises, jobs: JobColumns, now: float) -> None:
    """Give capacity that jobs ending early have freed to the first waiting jobs, in
    order, as earlier promised starts. No start moves later."""
    if promises.count[HAS_SLACK] == 0:
        return
    promises.count[HAS_SLACK] = 0
    for row in range(min(BROUGHT_FORWARD, jobs.count[AT_WAITING])):
        job = jobs.waiting[row]
        if promises.starts_at[job] >= 0:
            take_back(promises, jobs, job, now)
            promise(promises, jobs, job)


@compiled
def take_back(promises: Promises, jobs: JobColumns, job: int, now: float) -> None:
    """Withdraw the promise of the job, so that no GPUs are reserved for it."""
    promised_start = promises.starts_at[job]
    add_free(
        promises,
        max(now, promised_start),
        promised_start + jobs.limit[job],
        jobs.gpus[job],
    )


@compiled
def count_again(promises: Promises, jobs: JobColumns, gpus: int, now: float) -> None:
    """Rebuild the promises from the running jobs, after a job has exceeded its
    limit."""
    promises.at[0] = now
    promises.free[0] = gpus
    promises.count[STEPS] = 1
    for running_index in range(jobs.count[AT_RUNNING]):
        job = jobs.running[running_index]
        add_free(promises, now, jobs.ends[job], -jobs.gpus[job])
    for row in range(jobs.count[AT_WAITING]):
        job = jobs.waiting[row]
        if promises.starts_at[job] >= 0:
            promise(promises, jobs, job)
