"""The complete state that a pass over the queue reads and changes, and the two
operations that all passes share."""

from typing import Any, Final, NamedTuple

from corral.schedule.arrays.compiled import column, compiled
from corral.schedule.arrays.hazard import LEVELS
from corral.schedule.columns.gpu_pool import Pool, hold, pool_of
from corral.schedule.columns.job_groups import JobColumns, begin_running, jobs_of
from corral.schedule.columns.late_jobs import LateColumns, late_columns_of
from corral.schedule.columns.order import ColumnPolicy, backfills, counts_service
from corral.schedule.columns.prediction import KinMeans, kin_of
from corral.schedule.columns.preemption import VictimColumns, victims_of
from corral.schedule.columns.promises import Promises, promises_of
from corral.schedule.columns.runtime_model import History, history_of

STARTED, PREEMPTED, PROMISED = 0, 1, 2
HEADROOM_ROWS: Final = 4  # moves that one start can make for each GPU, at the most


class PassMoves(NamedTuple):
    """The actions of scheduling passes, in order: starts, preemptions and promises. The
    reader sets `count` to 0 to empty the list.

    `seconds` depends on the action. For a preempted job, it is the time that the job
    still needed to restore its state. For a promise, it is the latest start of the job
    if no running job exceeds its limit.
    """

    kind: Any
    job: Any
    seconds: Any
    count: Any


class PassState(NamedTuple):
    """The complete state of a replay's scheduler, which each pass reads and changes."""

    jobs: JobColumns
    pool: Pool
    history: History
    kin: KinMeans
    late: LateColumns
    victims: VictimColumns
    promises: Promises
    moves: PassMoves


def state_of(
    sizes: "list[int]",
    *,
    jobs: int,
    class_gpus: "list[int]",
    policy: ColumnPolicy,
    kin: int = 0,
) -> PassState:
    """Return the state of an empty cluster with nodes of these sizes in GPUs.

    It has rows for `jobs` jobs. `class_gpus` holds the GPUs of each job class.
    """
    pool, classes = pool_of(sizes, jobs), len(class_gpus)
    levels = LEVELS if counts_service(policy) else 1
    rows = jobs_of(jobs, gpus=pool.gpus, classes=classes, levels=levels)
    for klass, gpus in enumerate(class_gpus):
        rows.class_gpus[klass] = gpus
        rows.class_weight[klass] = float(gpus) ** policy.size_power
    room = HEADROOM_ROWS * (pool.gpus + 1) + (jobs if backfills(policy) else 0)
    return PassState(
        jobs=rows,
        pool=pool,
        history=history_of(classes),
        kin=kin_of(jobs, kin),
        late=late_columns_of(),
        victims=victims_of(pool, jobs),
        promises=promises_of(pool, jobs if backfills(policy) else 0),
        moves=PassMoves(
            kind=column(room, "int"),
            job=column(room, "int"),
            seconds=column(room, "float"),
            count=column(1, "int"),
        ),
    )


@compiled
def begin(
    policy: ColumnPolicy, state: PassState, job: int, parts: int, now: float
) -> None:
    """Start the job on the first `parts` seats that `find` has found. The job must
    already be removed from the waiting jobs."""
    jobs = state.jobs
    hold(state.pool, job, parts)
    begin_running(jobs, job)
    jobs.started[job] = now
    jobs.overhead[job] = policy.restart_seconds if jobs.preempted[job] > 0 else 0.0
    tell(state.moves, STARTED, job, 0.0)


@compiled
def tell(moves: PassMoves, kind: int, job: int, seconds: float) -> None:
    moves.kind[moves.count[0]] = kind
    moves.job[moves.count[0]] = job
    moves.seconds[moves.count[0]] = seconds
    moves.count[0] += 1
