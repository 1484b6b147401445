"""Backfill: a job that has room now may start before jobs that have none, if this
breaks no promise.

EASY promises a start to one job, the first in the line without room, and keeps its
seats free node by node. Conservative backfill promises one to every job, counted in
GPUs: on nodes of several GPUs fragmentation may delay a start, on nodes of one GPU
nothing does. A promise is kept unless a running job exceeds its limit.

Source: Lifka 1995; Mu'alem and Feitelson 2001.
"""

from corral.schedule.arrays.compiled import compiled
from corral.schedule.columns.availability import (
    add_free,
    bring_forward,
    count_again,
    forget_past,
    promise,
)
from corral.schedule.columns.gpu_pool import USED, find
from corral.schedule.columns.job_groups import AT_WAITING, NONE, WAITING, JobColumns
from corral.schedule.columns.order import CONSERVATIVE, EASY_SHORTEST, ColumnPolicy
from corral.schedule.columns.promises import (
    FOREVER,
    HAS_SLACK,
    RESERVED,
    blend,
    give_overtime,
    join_ending,
    join_line,
    keep_later,
    leave_ending,
    leave_line,
    look_ahead,
)
from corral.schedule.columns.state import PROMISED, PassState, begin, tell


@compiled
def wait_in_line(state: PassState, job: int) -> None:
    """Add a job to the line of waiting jobs at its `turn`, which is already set. No
    start is promised to it yet."""
    state.jobs.state[job] = WAITING
    state.promises.starts_at[job] = NONE
    join_line(state.jobs, job)


@compiled
def backfill(policy: ColumnPolicy, state: PassState, now: float) -> None:
    """Start the waiting jobs that have room now and do not delay any promised start."""
    is_late = give_overtime(state.promises, state.jobs, now)
    if policy.rule == CONSERVATIVE:
        _keep_promises(policy, state, is_late, now)
        return
    first_job = _start_first(policy, state, now)
    if first_job == NONE or state.pool.total[USED] == state.pool.gpus:
        return
    start_time = look_ahead(state.promises, state.jobs, state.pool, first_job)
    if state.promises.starts_at[first_job] == NONE:
        state.promises.starts_at[first_job] = start_time
        tell(state.moves, PROMISED, first_job, start_time)
    _backfill_jobs(policy, state, first_job, start_time, now)


@compiled
def _start_first(policy: ColumnPolicy, state: PassState, now: float) -> int:
    """Start jobs from the head of the line until one has no room. Reserve GPUs for that
    job and return it; -1 if all jobs of the line have started."""
    jobs, reserved = state.jobs, state.promises.count
    while jobs.count[AT_WAITING] > 0:
        first_job = reserved[RESERVED]
        if first_job == NONE:
            first_job = _head_of_line(policy, jobs)
        seat_count = find(state.pool, jobs.gpus[first_job])
        if seat_count == 0:
            reserved[RESERVED] = first_job
            return int(first_job)
        reserved[RESERVED] = NONE
        _start_job(policy, state, first_job, seat_count, now)
    return NONE


@compiled
def _head_of_line(policy: ColumnPolicy, jobs: JobColumns) -> int:
    """Return the job that must be served next: the first in the line or, if the line is
    ordered by run time, the oldest job."""
    first_job = jobs.waiting[0]
    if policy.rule == EASY_SHORTEST:
        for waiting_index in range(jobs.count[AT_WAITING]):
            first_job = min(first_job, jobs.waiting[waiting_index])
    return int(first_job)


@compiled
def _backfill_jobs(
    policy: ColumnPolicy, state: PassState, first: int, at: float, now: float
) -> None:
    """Start jobs behind `first`, which has reserved seats from the time `at`. Each must
    end before `at`, or leave those seats free then."""
    jobs, pool, overlap_pool = state.jobs, state.pool, state.promises.both
    too_big, too_big_later, waiting_index = pool.gpus + 1, pool.gpus + 1, 0
    while waiting_index < jobs.count[AT_WAITING] and pool.total[USED] < pool.gpus:
        job = jobs.waiting[waiting_index]
        waiting_index += 1
        if job == first or jobs.gpus[job] >= too_big:
            continue
        gpus, seat_count = jobs.gpus[job], 0
        is_gone_by_then = now + jobs.limit[job] <= at
        if is_gone_by_then:
            seat_count = find(pool, gpus)
            too_big = gpus if seat_count == 0 else too_big
        elif gpus < too_big_later:
            seat_count = find(overlap_pool, gpus)
            too_big_later = gpus if seat_count == 0 else too_big_later
        if seat_count == 0:
            continue
        if not is_gone_by_then:
            keep_later(state.promises, seat_count)
        _start_job(policy, state, job, seat_count, now)
        blend(state.promises, pool)
        waiting_index -= 1


@compiled
def _start_job(
    policy: ColumnPolicy, state: PassState, job: int, parts: int, now: float
) -> None:
    leave_line(state.jobs, job)
    begin(policy, state, job, parts, now)
    state.jobs.ends[job] = now + state.jobs.limit[job]
    join_ending(state.promises, state.jobs, job)


@compiled
def leave_promises(
    policy: ColumnPolicy, state: PassState, job: int, now: float
) -> None:
    """Update the promises after a running job has ended. If it ended before its limit,
    its remaining time becomes free."""
    leave_ending(state.promises, job)
    if policy.rule == CONSERVATIVE and now < state.jobs.ends[job]:
        add_free(state.promises, now, state.jobs.ends[job], state.jobs.gpus[job])
        state.promises.count[HAS_SLACK] = 1


@compiled
def _keep_promises(
    policy: ColumnPolicy, state: PassState, is_late: bool, now: float
) -> None:
    """Promise a start to each new job, and start jobs whose promised time has come.
    `is_late`: a running job exceeds its limit."""
    jobs, promises, row = state.jobs, state.promises, 0
    forget_past(promises, now)
    if is_late or promises.next[0] < now:
        count_again(promises, jobs, state.pool.gpus, now)
    bring_forward(promises, jobs, now)
    promises.next[0] = FOREVER
    while row < jobs.count[AT_WAITING]:
        job = jobs.waiting[row]
        row += 1
        if promises.starts_at[job] == NONE:
            promise(promises, jobs, job)
            tell(state.moves, PROMISED, job, promises.starts_at[job])
        seat_count = (
            find(state.pool, jobs.gpus[job]) if promises.starts_at[job] <= now else 0
        )
        if seat_count > 0:
            _start_job(policy, state, job, seat_count, now)
            row -= 1
        else:
            promises.next[0] = min(promises.next[0], promises.starts_at[job])
