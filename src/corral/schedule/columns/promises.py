"""Future free GPUs and their reservations, as columns that are updated with each
change.

There are two forms. For EASY backfill, the ends of running jobs are kept in order, and
the seats of one waiting job are found node by node. For conservative backfill, the
number of GPUs free from each time on is kept, to find starts for all waiting jobs.
"""

from typing import Any, Final, NamedTuple

from corral.schedule.arrays.compiled import column, compiled
from corral.schedule.columns.gpu_pool import NOBODY, USED, Pool, find
from corral.schedule.columns.job_groups import AT_WAITING, NONE, JobColumns

# first extension for a job beyond its limit; each further one doubles
OVERTIME_SECONDS: Final = 60.0
FOREVER: Final = 1e300
ENDING, STEPS, RESERVED, HAS_SLACK = 0, 1, 2, 3  # in `count`


class Shadow(NamedTuple):
    """The free GPUs that a pool will have at a later time. It has the same columns as
    Pool, so that `find` can search in both."""

    nodes: int
    wide: int
    gpus: int
    free: Any
    with_free: Any
    total: Any
    taken: Any
    out_node: Any
    out_gpus: Any


class Promises(NamedTuple):
    """Future free GPUs, and the starts promised to waiting jobs.

    `ending` holds running jobs in the order of their latest end. `later` is the pool at
    the start of the job with the reservation, without the seats of that job. `both` is
    what is free now and also free then.

    `at` and `free` hold times and, from each time on, the number of GPUs that are
    neither held nor promised. `starts_at` holds the promised start of each job; -1 if
    nothing is promised to the job. `next` is the earliest promised start. `count` holds
    the number of rows in `ending`, the number of rows in `at`, the job with the
    reservation, and whether a job has ended early.
    """

    ending: Any
    later: Any
    both: Any
    at: Any
    free: Any
    starts_at: Any
    next: Any
    count: Any


def promises_of(pool: Pool, jobs: int) -> Promises:
    """Return the promises of an empty pool: no job runs, and nothing is promised."""
    steps = 2 * (pool.gpus + jobs) + 8 if jobs else 1
    promises = Promises(
        ending=column(pool.gpus + 1, "int"),
        later=_shadow_of(pool),
        both=_shadow_of(pool),
        at=column(steps, "float"),
        free=column(steps, "int"),
        starts_at=column(jobs, "float", NONE),
        next=column(1, "float", FOREVER),
        count=column(4, "int"),
    )
    promises.free[0] = pool.gpus
    promises.count[STEPS] = 1
    promises.count[RESERVED] = NONE
    return promises


def _shadow_of(pool: Pool) -> Shadow:
    return Shadow(
        nodes=pool.nodes,
        wide=pool.wide,
        gpus=pool.gpus,
        free=column(pool.nodes, "int"),
        with_free=column(pool.wide + 1, "int"),
        total=column(2, "int"),
        taken=pool.taken,
        out_node=pool.out_node,
        out_gpus=pool.out_gpus,
    )


@compiled
def join_ending(promises: Promises, jobs: JobColumns, job: int) -> None:
    """Add the job to `ending`, the running jobs sorted by their latest possible end."""
    ending_index = promises.count[ENDING]
    while (
        ending_index > 0
        and jobs.ends[promises.ending[ending_index - 1]] > jobs.ends[job]
    ):
        promises.ending[ending_index] = promises.ending[ending_index - 1]
        ending_index -= 1
    promises.ending[ending_index] = job
    promises.count[ENDING] += 1


@compiled
def leave_ending(promises: Promises, job: int) -> None:
    promises.count[ENDING] -= 1
    ending_index = 0
    while promises.ending[ending_index] != job:
        ending_index += 1
    for row in range(ending_index, promises.count[ENDING]):
        promises.ending[row] = promises.ending[row + 1]


@compiled
def give_overtime(promises: Promises, jobs: JobColumns, now: float) -> bool:
    """Postpone the expected end of jobs that have exceeded their limits to a little
    later than now. Return whether there were any."""
    was_any = False
    while promises.count[ENDING] > 0 and jobs.ends[promises.ending[0]] <= now:
        job, extra_seconds = promises.ending[0], OVERTIME_SECONDS
        limit = jobs.started[job] + jobs.limit[job]
        while limit + extra_seconds <= now:
            extra_seconds *= 2
        leave_ending(promises, job)
        jobs.ends[job] = limit + extra_seconds
        join_ending(promises, jobs, job)
        was_any = True
    return was_any


@compiled
def look_ahead(promises: Promises, jobs: JobColumns, pool: Pool, job: int) -> float:
    """Return when the job will have room at the latest, given the ends of running jobs.
    Set `later` and `both` so that this room stays free."""
    later = promises.later
    _copy_pool(pool, later)
    available_at = FOREVER
    for ending_index in range(promises.count[ENDING]):
        ending = promises.ending[ending_index]
        seat = pool.first_seat[ending]
        while seat != NOBODY:
            shift(later, pool.seat_node[seat], pool.seat_gpus[seat])
            seat = pool.seat_next[seat]
        follows = promises.ending[min(ending_index + 1, promises.count[ENDING] - 1)]
        if (
            jobs.ends[follows] > jobs.ends[ending]
            or ending_index + 1 == promises.count[ENDING]
        ):
            seat_count = find(later, jobs.gpus[job])
            if seat_count > 0:
                keep_later(promises, seat_count)
                available_at = jobs.ends[ending]
                break
    blend(promises, pool)
    return float(available_at)


@compiled
def keep_later(promises: Promises, parts: int) -> None:
    """Mark the first `parts` seats that were found as taken in the future pool, too."""
    later = promises.later
    for seat_index in range(parts):
        shift(later, later.out_node[seat_index], -later.out_gpus[seat_index])


@compiled
def shift(later: Shadow, node: int, gpus: int) -> None:
    later.with_free[later.free[node]] -= 1
    later.free[node] += gpus
    later.with_free[later.free[node]] += 1
    later.total[USED] -= gpus


@compiled
def _copy_pool(pool: Pool, other: Shadow) -> None:
    for node in range(pool.nodes):
        other.free[node] = pool.free[node]
    for free_gpus in range(pool.wide + 1):
        other.with_free[free_gpus] = pool.with_free[free_gpus]
    other.total[USED] = pool.total[USED]


@compiled
def blend(promises: Promises, pool: Pool) -> None:
    """Recompute `both`, the part of the pool that is free now and later."""
    later, overlap_pool = promises.later, promises.both
    for free_gpus in range(pool.wide + 1):
        overlap_pool.with_free[free_gpus] = 0
    used_gpus = pool.gpus
    for node in range(pool.nodes):
        free_gpus = min(pool.free[node], later.free[node])
        overlap_pool.free[node] = free_gpus
        overlap_pool.with_free[free_gpus] += 1
        used_gpus -= free_gpus
    overlap_pool.total[USED] = used_gpus


@compiled
def join_line(jobs: JobColumns, job: int) -> None:
    """Insert the job into the line of waiting jobs, sorted by `turn`. Equal turns are
    ordered by row."""
    line_index = jobs.count[AT_WAITING]
    while line_index > 0 and (
        jobs.turn[jobs.waiting[line_index - 1]],
        jobs.waiting[line_index - 1],
    ) > (
        jobs.turn[job],
        job,
    ):
        jobs.waiting[line_index] = jobs.waiting[line_index - 1]
        line_index -= 1
    jobs.waiting[line_index] = job
    jobs.count[AT_WAITING] += 1


@compiled
def leave_line(jobs: JobColumns, job: int) -> None:
    jobs.count[AT_WAITING] -= 1
    line_index = 0
    while jobs.waiting[line_index] != job:
        line_index += 1
    for row in range(line_index, jobs.count[AT_WAITING]):
        jobs.waiting[row] = jobs.waiting[row + 1]
