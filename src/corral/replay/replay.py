"""A workload through the scheduler in virtual time: from event to event, a pass at each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from corral.replay.world import HELD, LOST, Log, World, advance, log_of
from corral.schedule.compiled import column
from corral.schedule.order import Named
from corral.schedule.turns import State, state_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs in the order of submission, one in each position of every column.

    `queues` are numbers of queues; jobs of one queue and one size are a class. `limits`: seconds
    that the user allows, 0 where no limit is known. `names` are for reports only.
    """

    submits: Sequence[float]
    durations: Sequence[float]
    gpus: Sequence[int]
    queues: Sequence[int]
    limits: Sequence[float] = ()
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        if any(later < sooner for sooner, later in pairwise(self.submits)):
            raise ValueError("jobs come in the order of submission")
        if self.durations and min(min(self.durations), min(self.gpus)) <= 0:
            raise ValueError("each job takes some time and at least one GPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One row of the log; `node` and `gpus` only for a start (one row a node of the gang)."""

    at: float
    kind: int
    job: int
    node: int
    gpus: int
    service: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`ended`: seconds at which each job ended. GPU-seconds: held until the last submission, and
    spent on restarts."""

    workload: Workload
    nodes: tuple[int, ...]
    ended: Sequence[float]
    preemptions: int
    held_gpu_seconds: float
    lost_gpu_seconds: float

    @property
    def waits(self) -> list[float]:
        """Seconds from submission to end that were not the job's own run time."""
        work = self.workload
        rows = zip(self.ended, work.submits, work.durations, strict=True)
        return [max(0.0, end - begun - own) for end, begun, own in rows]


def replay(
    workload: Workload,
    nodes: Sequence[int],
    named: Named,
    *,
    on_event: Callable[[Event], None] | None = None,
) -> Outcome:
    """Run all jobs to their ends on nodes of so many GPUs. The same input gives the same outcome.

    Raises: ValueError when a job is larger than all nodes together.
    """
    if max(workload.gpus, default=0) > sum(nodes):
        raise ValueError(f"a job asks for {max(workload.gpus)} GPUs, all nodes have {sum(nodes)}")
    world, state = world_of(workload), state_of_workload(workload, nodes, named)
    log = log_of(gpus=sum(nodes), is_kept=on_event is not None)
    is_done = False
    while not is_done:
        is_done = advance(named.policy, world, state, log)
        if on_event is not None:
            _read(log, on_event)
    return Outcome(
        workload=workload,
        nodes=tuple(nodes),
        ended=_plain(world.ended),
        preemptions=int(sum(_plain(state.jobs.preempted))),
        held_gpu_seconds=float(world.number[HELD]),
        lost_gpu_seconds=float(world.number[LOST]),
    )


def world_of(workload: Workload) -> World:
    """Nobody has come yet."""
    jobs = len(workload.submits)
    return World(
        jobs=jobs,
        horizon=float(workload.submits[-1]) if jobs else 0.0,
        submits=_filled(workload.submits),
        duration=_filled(workload.durations),
        ended=column(jobs, "float"),
        count=column(2, "int"),
        number=column(3, "float"),
    )


def state_of_workload(workload: Workload, nodes: Sequence[int], named: Named) -> State:
    """Empty nodes, and a row of each job to come."""
    classes: dict[tuple[int, int], int] = {}
    klass = [
        classes.setdefault(kind, len(classes))
        for kind in zip(workload.queues, workload.gpus, strict=True)
    ]
    state = state_of(
        list(nodes),
        jobs=len(klass),
        class_gpus=[gpus for _, gpus in classes],
        policy=named.policy,
    )
    jobs = state.jobs
    for job, gpus in enumerate(workload.gpus):
        jobs.gpus[job] = gpus
        jobs.klass[job] = klass[job]
        jobs.weight[job] = jobs.class_weight[klass[job]]
        jobs.expected[job] = workload.durations[job] if named.is_oracle else 0.0
    return state


def _filled(values: Sequence[float]) -> Any:
    made = column(len(values), "float")
    for at, value in enumerate(values):
        made[at] = value
    return made


def _plain(values: Any) -> list[Any]:
    plain = getattr(values, "tolist", None)
    return list(values) if plain is None else plain()


def _read(log: Log, on_event: Callable[[Event], None]) -> None:
    for row in range(log.count[0]):
        on_event(
            Event(
                at=float(log.at[row]),
                kind=int(log.kind[row]),
                job=int(log.job[row]),
                node=int(log.node[row]),
                gpus=int(log.gpus[row]),
                service=float(log.service[row]),
            )
        )
    log.count[0] = 0
