"""One pass over the queue: who starts, who gives way. The whole state is columns, changed in place.

The same pass serves every event of virtual time and every tick of the live head.
"""

from typing import Any, Final, NamedTuple

from corral.schedule.ageing import Ageing, ageing_of, look_for_elder, protect
from corral.schedule.backlog import (
    NONE,
    Jobs,
    begin_running,
    drop,
    end_running,
    jobs_of,
    push,
    served,
)
from corral.schedule.compiled import column, compiled
from corral.schedule.history import LEVELS, History, history_of, learn_end, level_after, pause
from corral.schedule.order import (
    FIFO,
    KEPT,
    LEARNED,
    Policy,
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
from corral.schedule.pool import Pool, find, hold, pool_of, release
from corral.schedule.preempt import Victims, find_victims, victims_of

ANY_SIZE: Final = 1 << 40
ELDEST: Final = -1e17  # the key of whoever has waited longest: better than any
STARTED, PREEMPTED = 0, 1
HEADROOM_ROWS: Final = 4  # moves that one start can make for each GPU, at the most


class Moves(NamedTuple):
    """What passes did, in order; the reader empties it by setting `count` to 0.

    `unspent`: of a preempted job, the seconds of restoring that it was still to spend.
    """

    kind: Any
    job: Any
    unspent: Any
    count: Any


class State(NamedTuple):
    """All that a pass reads and changes."""

    jobs: Jobs
    pool: Pool
    history: History
    ageing: Ageing
    victims: Victims
    moves: Moves


def state_of(sizes: "list[int]", *, jobs: int, class_gpus: "list[int]", policy: Policy) -> State:
    """An empty cluster of nodes of those sizes, and room for so many jobs of those classes."""
    pool, classes = pool_of(sizes, jobs), len(class_gpus)
    levels = LEVELS if counts_service(policy) else 1
    rows = jobs_of(jobs, gpus=pool.gpus, classes=classes, levels=levels)
    for klass, gpus in enumerate(class_gpus):
        rows.class_gpus[klass] = gpus
        rows.class_weight[klass] = float(gpus) ** policy.size_power
    room = HEADROOM_ROWS * (pool.gpus + 1)
    return State(
        jobs=rows,
        pool=pool,
        history=history_of(classes),
        ageing=ageing_of(),
        victims=victims_of(pool, jobs),
        moves=Moves(
            kind=column(room, "int"),
            job=column(room, "int"),
            unspent=column(room, "float"),
            count=column(1, "int"),
        ),
    )


@compiled
def submit(policy: Policy, state: State, job: int, now: float) -> None:
    """The job waits from now on. Its `gpus`, `klass`, `weight` and `expected` are known."""
    jobs = state.jobs
    jobs.submitted[job] = now
    jobs.queued[job] = now
    jobs.turn[job] = turn_of(policy, jobs, job)
    push(jobs, job, group_of(policy, jobs.klass[job], 0))


@compiled
def conclude(policy: Policy, state: State, job: int, now: float) -> None:
    """A running job has ended: its GPUs are free, and its service is known to history."""
    jobs = state.jobs
    jobs.attained[job] = served(jobs, job, now)
    end_running(jobs, job)
    release(state.pool, job)
    if policy.rule == LEARNED:
        level = level_after(state.history, 0, jobs.attained[job])
        learn_end(state.history, jobs.klass[job], level)


@compiled
def take_turns(policy: Policy, state: State, now: float) -> None:
    """Start whom the policy prefers and who has room, or gets it; `moves` tells what was done."""
    jobs = state.jobs
    if not has_waiting(jobs):
        return
    rank_groups(policy, jobs, state.history, now)
    worst = key_running(policy, jobs, state.history, now) if preempts(policy) else KEPT
    elder = look_for_elder(policy, jobs, state.pool, state.ageing, now)
    if elder != NONE and _start(policy, state, elder, ELDEST, worst, now):
        protect(policy, jobs, state.ageing, elder, now)
        jobs.key[elder] = KEPT
    too_big = ANY_SIZE
    while has_waiting(jobs):
        group = first_group(policy, jobs, too_big)
        if group == NONE:
            return
        job, key = jobs.root[group], key_of_waiting(policy, jobs, group)
        if _start(policy, state, job, key, worst, now):
            continue
        if policy.rule == FIFO:
            return
        too_big = jobs.gpus[job]  # whoever goes later and asks for as much has no room either


@compiled
def _start(policy: Policy, state: State, job: int, key: float, worst: float, now: float) -> bool:
    jobs, pool = state.jobs, state.pool
    parts = find(pool, jobs.gpus[job])
    if parts == 0 and preempts(policy):
        own = key
        if jobs.preempted[job] > 0 and key >= 0:
            own += policy.restart_seconds * jobs.weight[job]
        if own * policy.margin < worst:
            parts = find_victims(pool, jobs, state.victims, policy, job, own, now)
            if parts > 0:
                for at in range(state.victims.count[0]):
                    _preempt(policy, state, state.victims.job[at], now)
    if parts == 0:
        return False
    drop(jobs, job)
    if jobs.attained[job] > 0 and counts_service(policy):
        pause(state.history, jobs.klass[job], jobs.level[job], -1)
    hold(pool, job, parts)
    begin_running(jobs, job)
    jobs.started[job] = now
    jobs.overhead[job] = policy.restart_seconds if jobs.preempted[job] > 0 else 0.0
    jobs.key[job] = key
    _tell(state.moves, STARTED, job, 0.0)
    return True


@compiled
def _preempt(policy: Policy, state: State, job: int, now: float) -> None:
    """The job waits again, in its old turn, with the service that it has had."""
    jobs = state.jobs
    unspent = max(0.0, jobs.started[job] + jobs.overhead[job] - now)
    _tell(state.moves, PREEMPTED, job, unspent)
    jobs.attained[job] = served(jobs, job, now)
    jobs.preempted[job] += 1
    jobs.queued[job] = now
    end_running(jobs, job)
    release(state.pool, job)
    jobs.turn[job] = turn_of(policy, jobs, job)
    if counts_service(policy):
        jobs.level[job] = level_after(state.history, jobs.level[job], jobs.attained[job])
        if jobs.attained[job] > 0:
            pause(state.history, jobs.klass[job], jobs.level[job], 1)
    push(jobs, job, group_of(policy, jobs.klass[job], jobs.level[job]))


@compiled
def _tell(moves: Moves, kind: int, job: int, unspent: float) -> None:
    moves.kind[moves.count[0]] = kind
    moves.job[moves.count[0]] = job
    moves.unspent[moves.count[0]] = unspent
    moves.count[0] += 1
