"""Virtual time: from event to event, a pass of the scheduler at each, and the log of what it did.

How long jobs take lies here, where the scheduler does not look. All that is compiled in this room
is in this one file: numba keeps code by the text of its file, and `compiled` by that of schedule.
"""

from typing import Any, Final, NamedTuple

from corral.schedule.ageing import earn
from corral.schedule.backlog import AT_RUNNING, WAITING
from corral.schedule.compiled import column, compiled
from corral.schedule.order import Policy, has_waiting, preempts
from corral.schedule.pool import NOBODY, USED
from corral.schedule.turns import STARTED, State, conclude, submit, take_turns

STARTED_ON, PREEMPTED, ENDED = 0, 1, 2
LOG_ROWS: Final = 1 << 16
LATER: Final = 1e300
TOGETHER_SECONDS: Final = 1e-9  # events so near to one another are one


class World(NamedTuple):
    """Columns of jobs, in the order of submission.

    `count`: jobs submitted so far, and ended so far. `number`: now, GPU-seconds held before
    `horizon`, GPU-seconds spent on restarts.
    """

    jobs: int
    horizon: float
    submits: Any
    duration: Any
    ended: Any
    count: Any
    number: Any


SUBMITTED, DONE = 0, 1
NOW, HELD, LOST = 0, 1, 2


class Log(NamedTuple):
    """Columns of rows: one for each node of a start, one for a preemption, one for an end.

    `service`: the seconds of service that the job has had by then. With no rows nothing is kept.
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


def log_of(*, gpus: int, is_kept: bool) -> Log:
    headroom = 8 * (gpus + 1)
    rows = LOG_ROWS + headroom if is_kept else 0
    return Log(
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
def is_full(log: Log) -> bool:
    """Whether the next event may find no room."""
    return bool(log.rows > 0 and log.count[0] + log.headroom > log.rows)


@compiled
def ends_at(world: World, state: State, job: int) -> float:
    """When a running job will end, if it is let."""
    jobs = state.jobs
    left = world.duration[job] - jobs.attained[job]
    return float(jobs.started[job] + jobs.overhead[job] + left)


@compiled
def note_moves(world: World, state: State, log: Log) -> None:
    """Log what the pass did, and count what its restarts cost."""
    moves, jobs = state.moves, state.jobs
    for row in range(moves.count[0]):
        job = moves.job[row]
        if moves.kind[row] == STARTED:
            world.number[LOST] += jobs.overhead[job] * jobs.gpus[job]
            note_start(world, state, log, job)
        else:
            world.number[LOST] -= moves.unspent[row] * jobs.gpus[job]
            note(world, state, log, PREEMPTED, job)
    moves.count[0] = 0


@compiled
def note_start(world: World, state: State, log: Log, job: int) -> None:
    pool = state.pool
    seat = pool.first_seat[job] if log.rows > 0 else NOBODY
    while seat != NOBODY:
        at = log.count[0]
        note(world, state, log, STARTED_ON, job)
        log.node[at] = pool.seat_node[seat]
        log.gpus[at] = pool.seat_gpus[seat]
        seat = pool.seat_next[seat]


@compiled
def note(world: World, state: State, log: Log, kind: int, job: int) -> None:
    if log.rows == 0:
        return
    at = log.count[0]
    log.at[at] = world.number[NOW]
    log.kind[at] = kind
    log.job[at] = job
    log.node[at] = NOBODY
    log.gpus[at] = 0
    log.service[at] = state.jobs.attained[job]
    log.count[0] += 1


@compiled
def pass_time(world: World, state: State, now: float) -> None:
    """Count the GPUs held until now, as far as that is before the horizon."""
    seconds = min(now, world.horizon) - min(world.number[NOW], world.horizon)
    world.number[HELD] += seconds * state.pool.total[USED]
    world.number[NOW] = now


@compiled
def advance(policy: Policy, world: World, state: State, log: Log) -> bool:
    """From event to event until all jobs have ended (True), or until the log is full."""
    while world.count[DONE] < world.jobs and not is_full(log):
        step(policy, world, state, log)
    return bool(world.count[DONE] == world.jobs)


@compiled
def step(policy: Policy, world: World, state: State, log: Log) -> None:
    """All that happens at the next moment at which anything does."""
    now = _next_event(policy, world, state)
    pass_time(world, state, now)
    earn(policy, state.jobs, state.pool, state.ageing, now)
    _end_jobs(policy, world, state, log, now)
    while world.count[SUBMITTED] < world.jobs and (world.submits[world.count[SUBMITTED]] <= now):
        submit(policy, state, world.count[SUBMITTED], now)
        world.count[SUBMITTED] += 1
    take_turns(policy, state, now)
    note_moves(world, state, log)


@compiled
def advance_until_started(
    policy: Policy, world: World, state: State, log: Log, job: int, until: float
) -> float:
    """From event to event until a waiting job starts, or nothing more happens before `until`.

    Gives the time of the start, or `until`.
    """
    while state.jobs.state[job] == WAITING and world.count[DONE] < world.jobs:
        if _next_event(policy, world, state) >= until:
            return until
        step(policy, world, state, log)
    return float(world.number[NOW]) if state.jobs.state[job] != WAITING else until


@compiled
def advance_to(policy: Policy, world: World, state: State, log: Log, submitted: int) -> bool:
    """From event to event until so many jobs are submitted (True), or until the log is full."""
    while world.count[SUBMITTED] < submitted and not is_full(log):
        step(policy, world, state, log)
    return bool(world.count[SUBMITTED] >= submitted)


@compiled
def _next_event(policy: Policy, world: World, state: State) -> float:
    """The next submission or end; a tick while somebody waits who might preempt by then."""
    soonest, jobs = LATER, state.jobs
    if world.count[SUBMITTED] < world.jobs:
        soonest = world.submits[world.count[SUBMITTED]]
    for place in range(jobs.count[AT_RUNNING]):
        soonest = min(soonest, ends_at(world, state, jobs.running[place]))
    if preempts(policy) and has_waiting(jobs):
        tick = policy.tick_seconds
        soonest = min(soonest, (world.number[NOW] // tick + 1) * tick)
    return float(soonest)


@compiled
def _end_jobs(policy: Policy, world: World, state: State, log: Log, now: float) -> None:
    jobs, place = state.jobs, 0
    while place < jobs.count[AT_RUNNING]:
        job = jobs.running[place]
        if ends_at(world, state, job) > now + TOGETHER_SECONDS:
            place += 1
            continue
        conclude(policy, state, job, now)
        world.ended[job] = now
        world.count[DONE] += 1
        note(world, state, log, ENDED, job)
