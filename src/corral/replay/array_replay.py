"""Replay of a workload through the scheduler in virtual time. It proceeds from event to
event, with one scheduling pass at each event."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from corral.replay.array_world import (
    CUT,
    FAILS_AT,
    HELD,
    IDLE,
    LATER,
    LOST,
    SPLIT,
    WINDOWS,
    ReplayLog,
    ReplayWorld,
    advance,
    log_of,
    plan_failure,
)
from corral.replay.node_failures import NEVER, NodeFaults
from corral.replay.rng import dice_of
from corral.replay.workload import Workload, largest_gang
from corral.schedule.arrays.compiled import column, must_compile
from corral.schedule.columns.order import POLICIES, Named
from corral.schedule.columns.prediction import enter_kin
from corral.schedule.columns.state import PassState, state_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayEvent:
    """One row of the log. Only the rows of a start have `node` and `gpus`; a start has
    one row for each node of the gang."""

    at: float
    kind: int
    job: int
    node: int
    gpus: int
    service: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """The outcome of a replay. `ended` holds the second at which each job ended.
    GPU-seconds are counted as held until the last submission, and as lost to restarts
    and failures. `failures` counts the starts that a failing node cut short. `used`
    holds the share of GPUs held in each time window up to the last submission.
    `fragmentation` is the share of the GPU time free while jobs waited that was on
    partly used nodes."""

    workload: Workload
    nodes: tuple[int, ...]
    ended: Sequence[float]
    preemptions: int
    held_gpu_seconds: float
    lost_gpu_seconds: float
    failures: int
    used: Sequence[float]
    fragmentation: float

    @property
    def waits(self) -> list[float]:
        """Return for each job the seconds from submission to end that were not its own
        run time."""
        work = self.workload
        rows = zip(self.ended, work.submits, work.durations, strict=True)
        return [
            max(0.0, end_time - begun - own_seconds)
            for end_time, begun, own_seconds in rows
        ]


def compiles_first() -> bool:
    """Return whether numba must compile the core before the first replay. This takes
    about a minute on two cores."""
    return must_compile(advance)


def replay(
    workload: Workload,
    nodes: Sequence[int],
    named: Named,
    *,
    failures: NodeFaults = NEVER,
    on_event: Callable[[ReplayEvent], None] | None = None,
) -> ReplayOutcome:
    """Run all jobs to their ends on nodes with these numbers of GPUs. The same input
    gives the same outcome.

    Raises: ValueError if a job is larger than the nodes can hold.
    """
    if max(workload.gpus, default=0) > largest_gang(nodes):
        raise ValueError(
            f"a job of {max(workload.gpus)} GPUs is too large: the nodes fit at most "
            f"{largest_gang(nodes)}"
        )
    if named.with_limits and workload.limits and min(workload.limits) > 0:
        named = _with_limits(named)
    world = world_of(workload, failures)
    state = state_of_workload(workload, nodes, named)
    plan_failure(world, state)
    log = log_of(
        gpus=sum(nodes), jobs=len(workload.submits), is_kept=on_event is not None
    )
    is_done = False
    while not is_done:
        is_done = advance(named.policy, world, state, log)
        if on_event is not None:
            _emit_events(log, on_event)
    return ReplayOutcome(
        workload=workload,
        nodes=tuple(nodes),
        ended=_list_of_column(world.ended),
        preemptions=int(sum(_list_of_column(state.jobs.preempted)) - world.count[CUT]),
        held_gpu_seconds=float(world.number[HELD]),
        lost_gpu_seconds=float(world.number[LOST]),
        failures=int(world.count[CUT]),
        used=_window_shares(
            _list_of_column(world.windows), world.horizon * sum(nodes) / WINDOWS
        ),
        fragmentation=float(
            world.number[SPLIT] / world.number[IDLE] if world.number[IDLE] else 0
        ),
    )


def _window_shares(held: Sequence[float], whole: float) -> list[float]:
    return [gpu_seconds / whole if whole else 0.0 for gpu_seconds in held]


def _with_limits(named: Named) -> Named:
    """Return the policy that is used instead of `named` if users gave all jobs a time
    limit. The cost of a restart stays that of `named`."""
    chosen, restart = POLICIES[named.with_limits], named.policy.restart_seconds
    return replace(chosen, policy=chosen.policy._replace(restart_seconds=restart))


def world_of(workload: Workload, failures: NodeFaults = NEVER) -> ReplayWorld:
    """Return a replay of the workload at its beginning: the clock, the counters, and no
    submitted job."""
    jobs = len(workload.submits)
    world = ReplayWorld(
        jobs=jobs,
        horizon=float(workload.submits[-1]) if jobs else 0.0,
        submits=_float_column(workload.submits),
        duration=_float_column(workload.durations),
        ended=column(jobs, "float"),
        # of another type it would all be compiled once more
        mtbf=float(failures.mtbf_seconds),
        save=float(failures.save_seconds),
        windows=column(WINDOWS, "float"),
        dice=dice_of(failures.seed),
        count=column(3, "int"),
        number=column(6, "float"),
    )
    world.number[FAILS_AT] = LATER
    return world


def state_of_workload(
    workload: Workload, nodes: Sequence[int], named: Named
) -> PassState:
    """Return a state with empty nodes, and a row for each job of the workload."""
    classes: dict[tuple[int, int], int] = {}
    klass = [
        classes.setdefault(kind, len(classes))
        for kind in zip(workload.queues, workload.gpus, strict=True)
    ]
    kin, kin_rows = _similar_job_groups(workload) if named.policy.predicts else ([], 0)
    state = state_of(
        list(nodes),
        jobs=len(klass),
        class_gpus=[gpus for _, gpus in classes],
        policy=named.policy,
        kin=kin_rows,
    )
    enter_kin(state.kin, kin)
    jobs = state.jobs
    for job, gpus in enumerate(workload.gpus):
        jobs.gpus[job] = gpus
        jobs.klass[job] = klass[job]
        jobs.weight[job] = jobs.class_weight[klass[job]]
        jobs.limit[job] = workload.limits[job] if workload.limits else 0.0
        if named.is_oracle:
            jobs.expected[job] = jobs.limit[job] = workload.durations[job]
    return state


def _similar_job_groups(workload: Workload) -> tuple[list[list[int]], int]:
    """Return for each job the groups of similar jobs, from those of its user and name
    up to all jobs, and the number of groups."""
    rows: dict[tuple[int, ...], int] = {}
    unknown = [-1] * len(workload.submits)
    columns = zip(
        workload.users or unknown,
        workload.kinds or unknown,
        workload.queues,
        workload.gpus,
        strict=True,
    )
    groups = [
        [
            rows.setdefault((0, user, kind, gpus), len(rows))
            if min(user, kind) >= 0
            else -1,
            rows.setdefault((1, user, gpus), len(rows)) if user >= 0 else -1,
            rows.setdefault((2, queue, gpus), len(rows)),
            rows.setdefault((3,), len(rows)),
        ]
        for user, kind, queue, gpus in columns
    ]
    return groups, len(rows)


def _float_column(values: Sequence[float]) -> Any:
    float_array = column(len(values), "float")
    for row_index, value in enumerate(values):
        float_array[row_index] = value
    return float_array


def _list_of_column(values: Any) -> list[Any]:
    plain = getattr(values, "tolist", None)
    return list(values) if plain is None else plain()


def _emit_events(log: ReplayLog, on_event: Callable[[ReplayEvent], None]) -> None:
    for row in range(log.count[0]):
        on_event(
            ReplayEvent(
                at=float(log.at[row]),
                kind=int(log.kind[row]),
                job=int(log.job[row]),
                node=int(log.node[row]),
                gpus=int(log.gpus[row]),
                service=float(log.service[row]),
            )
        )
    log.count[0] = 0
