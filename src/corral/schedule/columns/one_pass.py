"""One scheduling pass over the queue, which chooses the jobs to start and to preempt.
Columns are changed in place.

The same pass serves every event of virtual time.
"""

from typing import Final

from corral.schedule.arrays.compiled import compiled
from corral.schedule.columns.backfill import backfill, leave_promises, wait_in_line
from corral.schedule.columns.gpu_pool import find, release
from corral.schedule.columns.job_groups import NONE, drop, end_running, push, served
from corral.schedule.columns.late_jobs import find_late_job, protect
from corral.schedule.columns.order import (
    FIFO,
    KEPT,
    LEARNED,
    ColumnPolicy,
    backfills,
    counts_service,
    first_group,
    group_of,
    has_waiting,
    key_of_waiting,
    key_running,
    preempts,
    rank_groups,
    turn_of,
)
from corral.schedule.columns.prediction import learn_seconds, predicted_seconds
from corral.schedule.columns.preemption import find_victims
from corral.schedule.columns.runtime_model import learn_end, level_after, pause
from corral.schedule.columns.state import PREEMPTED, PassState, begin, tell

ANY_SIZE: Final = 1 << 40
LATE_KEY: Final = -1e17  # the key of the latest job: better than any
# assumed maximum run time of a job without any record
UNKNOWN_SECONDS: Final = 86_400.0


@compiled
def submit(policy: ColumnPolicy, state: PassState, job: int, now: float) -> None:
    """Submit the job, which waits from now on. Its `gpus`, `klass` and `weight` are
    known; `expected` and `limit` only if they were given."""
    jobs = state.jobs
    jobs.submitted[job] = now
    jobs.queued[job] = now
    if policy.predicts:
        jobs.expected[job] = predicted_seconds(state.kin, job, jobs.limit[job])
        if jobs.limit[job] <= 0:
            jobs.limit[job] = (
                jobs.expected[job] if jobs.expected[job] > 0 else UNKNOWN_SECONDS
            )
    jobs.turn[job] = turn_of(policy, jobs, job)
    if backfills(policy):
        wait_in_line(state, job)
        return
    push(jobs, job, group_of(policy, jobs.klass[job], 0))


@compiled
def conclude(policy: ColumnPolicy, state: PassState, job: int, now: float) -> None:
    """End a running job: free its GPUs, and learn from its run time."""
    jobs = state.jobs
    jobs.attained[job] = served(jobs, job, now)
    end_running(jobs, job)
    release(state.pool, job)
    if policy.predicts:
        learn_seconds(state.kin, job, jobs.attained[job])
    if backfills(policy):
        leave_promises(policy, state, job, now)
    if policy.rule == LEARNED:
        level = level_after(state.history, 0, jobs.attained[job])
        learn_end(state.history, jobs.klass[job], level)


@compiled
def take_turns(policy: ColumnPolicy, state: PassState, now: float) -> None:
    """Run one pass: start the jobs that come first in the order and have room, or can
    get room by preemption. Each action is recorded in `moves`."""
    jobs = state.jobs
    if not has_waiting(jobs):
        return
    if backfills(policy):
        backfill(policy, state, now)
        return
    rank_groups(policy, jobs, state.history, now)
    worst = key_running(policy, jobs, state.history, now) if preempts(policy) else KEPT
    late_job = find_late_job(policy, jobs, state.pool, state.late, now)
    if late_job != NONE and _try_start_job(
        policy, state, late_job, LATE_KEY, worst, now
    ):
        protect(policy, jobs, state.late, late_job, now)
        jobs.key[late_job] = KEPT
    too_big = ANY_SIZE
    while has_waiting(jobs):
        group = first_group(policy, jobs, too_big)
        if group == NONE:
            return
        job, key = jobs.root[group], key_of_waiting(policy, jobs, group)
        if _try_start_job(policy, state, job, key, worst, now):
            continue
        if policy.rule == FIFO:
            return
        # whoever goes later and asks for as much has no room either
        too_big = jobs.gpus[job]


@compiled
def _try_start_job(
    policy: ColumnPolicy,
    state: PassState,
    job: int,
    key: float,
    worst: float,
    now: float,
) -> bool:
    jobs, pool = state.jobs, state.pool
    seat_count = find(pool, jobs.gpus[job])
    if seat_count == 0 and preempts(policy):
        own_key = key
        if jobs.preempted[job] > 0 and key >= 0:
            own_key += policy.restart_seconds * jobs.weight[job]
        if own_key * policy.margin < worst:
            seat_count = find_victims(
                pool, jobs, state.victims, policy, job, own_key, now
            )
            if seat_count > 0:
                for victim_index in range(state.victims.count[0]):
                    _preempt_job(policy, state, state.victims.job[victim_index], now)
    if seat_count == 0:
        return False
    drop(jobs, job)
    if jobs.attained[job] > 0 and counts_service(policy):
        pause(state.history, jobs.klass[job], jobs.level[job], -1)
    begin(policy, state, job, seat_count, now)
    jobs.key[job] = key
    return True


@compiled
def _preempt_job(policy: ColumnPolicy, state: PassState, job: int, now: float) -> None:
    """Preempt the job. It waits again, and keeps the service that it has received."""
    jobs = state.jobs
    unspent = max(0.0, jobs.started[job] + jobs.overhead[job] - now)
    tell(state.moves, PREEMPTED, job, unspent)
    put_back(policy, state, job, served(jobs, job, now), now)


@compiled
def put_back(
    policy: ColumnPolicy, state: PassState, job: int, attained: float, now: float
) -> None:
    """Make a running job wait again, at its old place in the order. `attained` is the
    seconds of service that it keeps."""
    jobs = state.jobs
    jobs.attained[job] = attained
    jobs.preempted[job] += 1
    jobs.queued[job] = now
    end_running(jobs, job)
    release(state.pool, job)
    jobs.turn[job] = turn_of(policy, jobs, job)
    if backfills(policy):
        leave_promises(policy, state, job, now)
        wait_in_line(state, job)
        return
    if counts_service(policy):
        jobs.level[job] = level_after(state.history, 0, attained)
        if attained > 0:
            pause(state.history, jobs.klass[job], jobs.level[job], 1)
    push(jobs, job, group_of(policy, jobs.klass[job], jobs.level[job]))
