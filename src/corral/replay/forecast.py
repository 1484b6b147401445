"""Predicted start of a waiting job, by many replays of the present state with the same
scheduler core.

Unknown facts are drawn at random: how much longer each job runs, from the record of
ended jobs that the scheduling order also uses; and which jobs will be submitted, from a
past period whose submissions are repeated.
"""

from bisect import bisect_left
from typing import Any, Final, NamedTuple

from corral.replay.array_world import (
    FAILS_AT,
    LATER,
    NOW,
    SUBMITTED,
    ReplayWorld,
    advance_until_started,
    log_of,
)
from corral.replay.rng import dice_of, roll
from corral.schedule.arrays.compiled import column, compiled
from corral.schedule.arrays.hazard import LEVELS
from corral.schedule.columns.gpu_pool import NOBODY, hold
from corral.schedule.columns.job_groups import (
    AT_RUNNING,
    AT_WAITING,
    NONE,
    RUNNING,
    WAITING,
    begin_running,
    push,
    served,
)
from corral.schedule.columns.order import ColumnPolicy
from corral.schedule.columns.runtime_model import History, hazard_of, level_after
from corral.schedule.columns.state import PassState, state_of

PAST_SECONDS: Final = 14 * 86_400.0  # so far back a stretch of arrivals may begin
MOST_ARRIVALS: Final = 4_000  # of one run
_COPIED: Final = (
    *(
        "submitted",
        "gpus",
        "klass",
        "expected",
        "weight",
        "turn",
        "level",
        "started",
        "overhead",
    ),
    *("attained", "queued", "preempted", "key", "protected_until"),
)


class Arrivals(NamedTuple):
    """Columns of past submissions in order of time: `at` is the time in seconds, and
    `klass` the class of the job."""

    at: Any
    klass: Any


class Stretch(NamedTuple):
    """A run of consecutive rows of past arrivals. `later` is by how many seconds they
    are shifted when they are replayed."""

    first: int
    rows: int
    later: float


@compiled
def draw_seconds(history: History, klass: int, attained: float, dice: Any) -> float:
    """Return a random total service, in seconds, at which a job of the class ends. The
    job has already received `attained` seconds, and the result is larger."""
    level = level_after(history, 0, attained)
    begin = attained
    while level < LEVELS - 1:
        level_end = history.edge[level + 1]
        level_fraction = (level_end - begin) / (level_end - history.edge[level])
        if roll(dice) < 1 - (1 - hazard_of(history, klass, level)) ** level_fraction:
            break
        begin = level_end
        level += 1
    return float(begin + roll(dice) * (history.edge[level + 1] - begin) + 1)


def waits(
    policy: ColumnPolicy,
    present: PassState,
    job: int,
    now: float,
    past: Arrivals,
    *,
    runs: int,
    seed: int,
    horizon_seconds: float = 10 * 86_400.0,
) -> list[float]:
    """Return the seconds from now to the start of the job in row `job`, one value for
    each replay, in ascending order.

    The first rows of `present` hold the jobs that run and wait now, and MOST_ARRIVALS
    more rows are free; `present` is not changed. `past` holds the submissions that are
    repeated. A replay without a start before the horizon counts as the horizon.
    """
    dice = dice_of(seed)
    log = log_of(gpus=0, is_kept=False)
    present_jobs = int(present.jobs.count[AT_RUNNING] + present.jobs.count[AT_WAITING])
    wait_list = []
    for _ in range(runs):
        stretch = _sample_stretch(past, now, horizon_seconds, roll(dice))
        state, world = (
            clone(present),
            _build_world(present_jobs, present_jobs + stretch.rows, now),
        )
        _draw_workload(world, state, past, stretch, dice)
        horizon_end = now + horizon_seconds
        wait_list.append(
            advance_until_started(policy, world, state, log, job, horizon_end) - now
        )
    return sorted(wait_list)


def _sample_stretch(
    past: Arrivals, now: float, seconds: float, where: float
) -> Stretch:
    """Return the arrivals of a past period of this many seconds, or of the whole past
    if that is shorter. `where` (0 to 1) selects the beginning of the period."""
    if not len(past.at):
        return Stretch(0, 0, 0.0)
    oldest = max(float(past.at[0]), now - max(PAST_SECONDS, seconds))
    begin = oldest + where * max(0.0, now - oldest - seconds)
    first_row = bisect_left(past.at, begin)
    rows = bisect_left(past.at, min(now, begin + seconds)) - first_row
    return Stretch(first_row, min(rows, MOST_ARRIVALS), now - begin)


def _build_world(here: int, jobs: int, now: float) -> ReplayWorld:
    world = ReplayWorld(
        jobs=jobs,
        horizon=0.0,
        submits=column(jobs, "float"),
        duration=column(jobs, "float"),
        ended=column(jobs, "float"),
        mtbf=0.0,
        save=0.0,
        windows=column(1, "float"),
        dice=dice_of(0),
        count=column(3, "int"),
        number=column(6, "float"),
    )
    world.number[NOW] = now
    world.number[FAILS_AT] = LATER
    world.count[SUBMITTED] = here
    return world


@compiled
def _draw_workload(
    world: ReplayWorld, state: PassState, past: Arrivals, stretch: Stretch, dice: Any
) -> None:
    jobs, present_jobs = state.jobs, world.count[SUBMITTED]
    for row in range(present_jobs):
        done = jobs.attained[row]
        if jobs.state[row] == RUNNING:
            done = served(jobs, row, world.number[NOW])
        world.duration[row] = draw_seconds(state.history, jobs.klass[row], done, dice)
    for arrival_index in range(stretch.rows):
        row, klass = (
            present_jobs + arrival_index,
            past.klass[stretch.first + arrival_index],
        )
        world.submits[row] = past.at[stretch.first + arrival_index] + stretch.later
        world.duration[row] = draw_seconds(state.history, klass, 0.0, dice)
        jobs.gpus[row] = jobs.class_gpus[klass]
        jobs.klass[row] = klass
        jobs.weight[row] = jobs.class_weight[klass]


def present_of(policy: ColumnPolicy, state: PassState) -> tuple[PassState, list[int]]:
    """Return a smaller state with only the jobs that run or wait now, as `waits` needs
    it, and the row of each job in the old state."""
    jobs = state.jobs
    rows = sorted(
        [
            int(jobs.running[running_index])
            for running_index in range(jobs.count[AT_RUNNING])
        ]
        + [
            int(jobs.waiting[waiting_index])
            for waiting_index in range(jobs.count[AT_WAITING])
        ]
    )
    compact_state = state_of(
        [int(size) for size in state.pool.size],
        jobs=len(rows) + MOST_ARRIVALS,
        class_gpus=[int(gpus) for gpus in jobs.class_gpus],
        policy=policy,
    )
    for row, old_row in enumerate(rows):
        _copy_job(state, compact_state, old_row, row)
    late_job = int(state.late.late_job[0])
    present = compact_state._replace(
        jobs=compact_state.jobs._replace(rank=jobs.rank.copy()),
        history=_clone_part(state.history),
        late=_clone_part(state.late),
    )
    present.late.late_job[0] = rows.index(late_job) if late_job in rows else NONE
    return present, rows


def _copy_job(state: PassState, made: PassState, old: int, row: int) -> None:
    jobs, pool = state.jobs, state.pool
    for name in _COPIED:
        getattr(made.jobs, name)[row] = getattr(jobs, name)[old]
    if jobs.state[old] == WAITING:
        push(made.jobs, row, int(jobs.group[old]))
        return
    seat, seat_count = pool.first_seat[old], 0
    while seat != NOBODY:
        made.pool.out_node[seat_count] = pool.seat_node[seat]
        made.pool.out_gpus[seat_count] = pool.seat_gpus[seat]
        seat_count += 1
        seat = pool.seat_next[seat]
    hold(made.pool, row, seat_count)
    begin_running(made.jobs, row)


def clone(state: PassState) -> PassState:
    """Return a copy of the state whose columns can change independently."""
    return PassState(*(_clone_part(column_group) for column_group in state))


def _clone_part(part: Any) -> Any:
    return type(part)(*map(_clone_value, part))


def _clone_value(value: Any) -> Any:
    if isinstance(value, int):
        return value
    return _clone_part(value) if isinstance(value, tuple) else value.copy()
