"""Virtual time of a replay: it proceeds from event to event, with one scheduling pass
at each, and logs what each pass did.

The run times of jobs are stored here, where the scheduler does not read them. All
compiled code of this package is in this one file: numba caches code by the text of its
file, and `compiled` by the text of the schedule package.
"""

from math import log
from typing import Any, Final, NamedTuple

from corral.replay.rng import roll
from corral.schedule.arrays.compiled import column, compiled
from corral.schedule.columns.gpu_pool import NOBODY, USED
from corral.schedule.columns.job_groups import AT_RUNNING, WAITING, served
from corral.schedule.columns.late_jobs import earn
from corral.schedule.columns.one_pass import conclude, put_back, submit, take_turns
from corral.schedule.columns.order import (
    CONSERVATIVE,
    ColumnPolicy,
    has_waiting,
    preempts,
)
from corral.schedule.columns.state import PREEMPTED, STARTED, PassState

BEGAN_ON, GAVE_WAY, ENDED, WAS_PROMISED, FAILED = 0, 1, 2, 3, 4
LOG_ROWS: Final = 1 << 16
LATER: Final = 1e300
TOGETHER_SECONDS: Final = 1e-9  # events so near to one another are one


class ReplayWorld(NamedTuple):
    """The state of a replay in columns of jobs, in the order of submission.

    `count` holds the jobs submitted so far, the jobs ended so far, and the starts cut
    short by a failing node. `number` holds the current time; the GPU-seconds held
    before `horizon`, lost to restarts and failures, free while a job waited, and of
    these on partly used nodes; and the time of the next failure. `windows` holds the
    GPU-seconds held in equal parts of the time before `horizon`. A node fails every
    `mtbf` seconds (0: never) and is back at once; its jobs keep what they saved, once
    every `save` seconds.
    """

    jobs: int
    horizon: float
    mtbf: float
    save: float
    submits: Any
    duration: Any
    ended: Any
    windows: Any
    dice: Any
    count: Any
    number: Any


SUBMITTED, DONE, CUT = 0, 1, 2
NOW, HELD, LOST, IDLE, SPLIT, FAILS_AT = 0, 1, 2, 3, 4, 5
WINDOWS: Final = 120


class ReplayLog(NamedTuple):
    """Columns of log rows: one row for each node of a start, and one for any other
    event.

    `service` holds the seconds of service that the job has received by then; for a
    promise, the latest start of the job. With 0 rows, nothing is logged.
    """

    rows: int
    headroom: int
    at: Any
    kind: Any
    job: Any
    node: Any
    gpus: Any
    service: Any
    count: Any


def log_of(*, gpus: int, is_kept: bool, jobs: int = 0) -> ReplayLog:
    """Return an empty log; without rows if not `is_kept`. `gpus` and `jobs` (jobs with
    a promised start) bound the rows that one event needs."""
    headroom = 8 * (gpus + 1) + jobs
    rows = LOG_ROWS + headroom if is_kept else 0
    return ReplayLog(
        rows=rows,
        headroom=headroom,
        at=column(rows, "float"),
        kind=column(rows, "int"),
        job=column(rows, "int"),
        node=column(rows, "int"),
        gpus=column(rows, "int"),
        service=column(rows, "float"),
        count=column(1, "int"),
    )


@compiled
def is_full(log: ReplayLog) -> bool:
    """Return whether too little room may be left for an event."""
    return bool(log.rows > 0 and log.count[0] + log.headroom > log.rows)


@compiled
def ends_at(world: ReplayWorld, state: PassState, job: int) -> float:
    """Return when a running job will end if it is not stopped."""
    jobs = state.jobs
    seconds_left = world.duration[job] - jobs.attained[job]
    return float(jobs.started[job] + jobs.overhead[job] + seconds_left)


@compiled
def note_moves(world: ReplayWorld, state: PassState, log: ReplayLog) -> None:
    """Log the moves of the pass, and count the cost of its restarts."""
    moves, jobs = state.moves, state.jobs
    for row in range(moves.count[0]):
        job = moves.job[row]
        if moves.kind[row] == STARTED:
            world.number[LOST] += jobs.overhead[job] * jobs.gpus[job]
            note_start(world, state, log, job)
        elif moves.kind[row] == PREEMPTED:
            world.number[LOST] -= moves.seconds[row] * jobs.gpus[job]
            note(world, state, log, GAVE_WAY, job)
        else:
            note(world, state, log, WAS_PROMISED, job)
            if log.rows > 0:
                log.service[log.count[0] - 1] = moves.seconds[row]
    moves.count[0] = 0


@compiled
def note_start(world: ReplayWorld, state: PassState, log: ReplayLog, job: int) -> None:
    pool = state.pool
    seat = pool.first_seat[job] if log.rows > 0 else NOBODY
    while seat != NOBODY:
        log_row = log.count[0]
        note(world, state, log, BEGAN_ON, job)
        log.node[log_row] = pool.seat_node[seat]
        log.gpus[log_row] = pool.seat_gpus[seat]
        seat = pool.seat_next[seat]


@compiled
def note(
    world: ReplayWorld, state: PassState, log: ReplayLog, kind: int, job: int
) -> None:
    if log.rows == 0:
        return
    log_row = log.count[0]
    log.at[log_row] = world.number[NOW]
    log.kind[log_row] = kind
    log.job[log_row] = job
    log.node[log_row] = NOBODY
    log.gpus[log_row] = 0
    log.service[log_row] = state.jobs.attained[job]
    log.count[0] += 1


@compiled
def pass_time(world: ReplayWorld, state: PassState, now: float) -> None:
    """Advance the time to `now`. For the part of that time before the horizon, count
    the GPUs that were held and the GPUs that were left free."""
    begun, pool = world.number[NOW], state.pool
    seconds = min(now, world.horizon) - min(begun, world.horizon)
    world.number[NOW] = now
    if seconds <= 0:
        return
    world.number[HELD] += seconds * pool.total[USED]
    wide = world.horizon / WINDOWS
    counted_until, span_end, window = begun, min(now, world.horizon), int(begun / wide)
    while counted_until < span_end and window < WINDOWS:
        window_end = min(span_end, (window + 1) * wide)
        if (
            window_end > counted_until
        ):  # not so where the quotient was rounded down over a bound
            world.windows[window] += (window_end - counted_until) * pool.total[USED]
            counted_until = window_end
        window += 1
    if has_waiting(state.jobs):
        world.number[IDLE] += seconds * (pool.gpus - pool.total[USED])
        for free_gpus in range(1, pool.wide):
            world.number[SPLIT] += seconds * free_gpus * pool.with_free[free_gpus]


@compiled
def plan_failure(world: ReplayWorld, state: PassState) -> None:
    """Draw the time of the next node failure in the cluster."""
    if world.mtbf <= 0:
        world.number[FAILS_AT] = LATER
        return
    seconds = -log(roll(world.dice)) * world.mtbf / state.pool.nodes
    world.number[FAILS_AT] = world.number[NOW] + seconds


@compiled
def fail_node(
    policy: ColumnPolicy, world: ReplayWorld, state: PassState, log: ReplayLog
) -> None:
    """Fail a random node. Its jobs wait again, with their last saved state; the node
    itself is back at once."""
    jobs, pool, now = state.jobs, state.pool, world.number[NOW]
    node = int(roll(world.dice) * pool.nodes)
    while pool.holders[node] > 0:
        job = pool.seat_job[pool.held[node * pool.wide]]
        done = served(jobs, job, now)
        saved = done // world.save * world.save if world.save > 0 else 0.0
        kept_seconds = max(saved, jobs.attained[job]) if world.save > 0 else 0.0
        unspent = max(0.0, jobs.started[job] + jobs.overhead[job] - now)
        world.number[LOST] += (done - kept_seconds - unspent) * jobs.gpus[job]
        world.count[CUT] += 1
        put_back(policy, state, job, kept_seconds, now)
        note(world, state, log, FAILED, job)
    plan_failure(world, state)


@compiled
def advance(
    policy: ColumnPolicy, world: ReplayWorld, state: PassState, log: ReplayLog
) -> bool:
    """Replay from event to event. Return True when all jobs have ended, or False when
    the log is full."""
    while world.count[DONE] < world.jobs and not is_full(log):
        step(policy, world, state, log)
    return bool(world.count[DONE] == world.jobs)


@compiled
def step(
    policy: ColumnPolicy, world: ReplayWorld, state: PassState, log: ReplayLog
) -> None:
    """Advance to the next moment at which anything happens, and do all that happens
    then."""
    now = _next_event(policy, world, state)
    pass_time(world, state, now)
    earn(policy, state.jobs, state.pool, state.late, now)
    _end_jobs(policy, world, state, log, now)
    if now >= world.number[FAILS_AT]:
        fail_node(policy, world, state, log)
    while world.count[SUBMITTED] < world.jobs and (
        world.submits[world.count[SUBMITTED]] <= now
    ):
        submit(policy, state, world.count[SUBMITTED], now)
        world.count[SUBMITTED] += 1
    take_turns(policy, state, now)
    note_moves(world, state, log)


@compiled
def advance_until_started(
    policy: ColumnPolicy,
    world: ReplayWorld,
    state: PassState,
    log: ReplayLog,
    job: int,
    until: float,
) -> float:
    """Replay from event to event until the waiting job starts, or until no event is
    left before `until`. Return the time of the start, or `until` if the job did not
    start."""
    while state.jobs.state[job] == WAITING and world.count[DONE] < world.jobs:
        if _next_event(policy, world, state) >= until:
            return until
        step(policy, world, state, log)
    return float(world.number[NOW]) if state.jobs.state[job] != WAITING else until


@compiled
def advance_to(
    policy: ColumnPolicy,
    world: ReplayWorld,
    state: PassState,
    log: ReplayLog,
    submitted: int,
) -> bool:
    """Replay from event to event. Return True when `submitted` jobs of the workload
    have been submitted, or False when the log is full."""
    while world.count[SUBMITTED] < submitted and not is_full(log):
        step(policy, world, state, log)
    return bool(world.count[SUBMITTED] >= submitted)


@compiled
def _next_event(policy: ColumnPolicy, world: ReplayWorld, state: PassState) -> float:
    """Return the time of the next event: a submission, an end or a failure; the next
    promised start; or the next tick of the policy's clock, if waiting jobs might
    preempt then."""
    soonest, jobs = world.number[FAILS_AT], state.jobs
    if world.count[SUBMITTED] < world.jobs:
        soonest = world.submits[world.count[SUBMITTED]]
    for running_index in range(jobs.count[AT_RUNNING]):
        soonest = min(soonest, ends_at(world, state, jobs.running[running_index]))
    if preempts(policy) and has_waiting(jobs):
        tick = policy.tick_seconds
        soonest = min(soonest, (world.number[NOW] // tick + 1) * tick)
    if policy.rule == CONSERVATIVE and state.promises.next[0] > world.number[NOW]:
        soonest = min(soonest, state.promises.next[0])
    return float(soonest)


@compiled
def _end_jobs(
    policy: ColumnPolicy,
    world: ReplayWorld,
    state: PassState,
    log: ReplayLog,
    now: float,
) -> None:
    jobs, running_index = state.jobs, 0
    while running_index < jobs.count[AT_RUNNING]:
        job = jobs.running[running_index]
        if ends_at(world, state, job) > now + TOGETHER_SECONDS:
            running_index += 1
            continue
        conclude(policy, state, job, now)
        world.ended[job] = now
        world.count[DONE] += 1
        note(world, state, log, ENDED, job)
