"""Replay of a workload with queues by the live scheduling decision. It gives the same
metrics and log as `replay`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from corral.domain.ids import BootId, JobId, NodeId, QueueName, UserName
from corral.domain.node import Liveness, Node
from corral.domain.queue_tree import QueueTree
from corral.domain.resources import Gpu, Inventory, Resources, Shape
from corral.domain.units import MILLIS_PER_GPU
from corral.replay.array_replay import ReplayEvent, ReplayOutcome
from corral.replay.array_world import BEGAN_ON, ENDED, FAILED, GAVE_WAY, WINDOWS
from corral.replay.live_replay import Play
from corral.replay.node_failures import NEVER, NodeFaults
from corral.replay.snapshot import Coming, Happened, JobClass, Present, Terms
from corral.replay.workload import Workload
from corral.schedule import NodeTypes
from corral.schedule.prediction.runtime_model import Lessons
from corral.schedule.quota.balances import Standing
from corral.schedule.waiting import Waiting

TYPE: Final = "gpu"
PORTS: Final = tuple(range(20_000, 20_064))  # as many as an agent's
_KINDS: Final = {
    JobClass.STARTED: BEGAN_ON,
    JobClass.PREEMPTED: GAVE_WAY,
    JobClass.ENDED: ENDED,
    JobClass.FAILED: FAILED,
}


def replay_queued(
    workload: Workload,
    nodes: Sequence[int],
    tree: QueueTree,
    names: Sequence[QueueName],
    *,
    restart_seconds: float = 60.0,
    failures: NodeFaults = NEVER,
    on_event: Callable[[ReplayEvent], None] | None = None,
) -> ReplayOutcome:
    """Run all jobs to their ends as a head with this queue tree would, and return the
    outcome. `names` holds the queue name for each number in `workload.queues`. All jobs
    can save.

    Raises: ValueError if a job is larger than the nodes, or its queue, can hold.
    """
    if held_by_no_queue(workload, nodes, tree, names):
        raise ValueError("a job requests more GPUs than its queue may ever hold")
    books = _Books(
        workload=workload, nodes=tuple(nodes), free=list(nodes), on_event=on_event
    )
    Play(
        Present(
            now=0.0,
            nodes=[node_of(row, gpus) for row, gpus in enumerate(nodes)],
            tree=tree,
        ),
        {},
        [
            coming_of(workload, row, names, nodes)
            for row in range(len(workload.submits))
        ],
        terms=Terms(
            restart_seconds=restart_seconds, failures=failures, counts_budgets=True
        ),
        hear=books.hear,
        lessons=Lessons(),
    ).run()
    return books.outcome()


def node_of(row: int, gpus: int) -> Node:
    """Return a node that has GPUs of one type, and always enough of all other
    resources."""
    node_gpus = (
        Gpu(index=i, uuid=f"{row}-{i}", type=TYPE, memory_bytes=0) for i in range(gpus)
    )
    return Node(
        id=NodeId(f"{row:05d}"),
        inventory=Inventory(gpus=tuple(node_gpus), ports=PORTS),
        liveness=Liveness.ALIVE,
        boot=BootId("1"),
    )


def shape_of(gpus: int, nodes: Sequence[int]) -> Shape:
    """Return the shape of a gang that divides its GPUs equally over the fewest nodes.
    The nodes must be able to hold it when empty.

    Raises: ValueError if there is no such shape.
    """
    for node_count in range(1, len(nodes) + 1):
        if (
            gpus % node_count == 0
            and sum(size >= gpus // node_count for size in nodes) >= node_count
        ):
            return Shape(
                nodes=node_count,
                resources=Resources(gpu_millis=gpus // node_count * MILLIS_PER_GPU),
            )
    raise ValueError(f"no nodes fit a gang of {gpus} GPUs in equal parts")


def fits(gpus: int, nodes: Sequence[int]) -> bool:
    """Return whether the empty nodes can hold a gang of this many GPUs in equal parts."""
    try:
        shape_of(gpus, nodes)
    except ValueError:
        return False
    return True


def held_by_no_queue(
    work: Workload, nodes: Sequence[int], tree: QueueTree, names: Sequence[QueueName]
) -> list[int]:
    """Return the rows of the jobs that their queue would refuse even if no other job
    held any seats."""
    fleet = NodeTypes([node_of(row, gpus) for row, gpus in enumerate(nodes)])
    empty_standing = Standing(tree, capacity=fleet.capacity, kinds=[TYPE], others=names)

    @cache
    def is_refused(queue: QueueName, gpus: int) -> bool:
        asked_millis = ((TYPE, gpus * MILLIS_PER_GPU),)
        return empty_standing.refusal(queue, UserName(""), asked_millis) is not None

    rows = enumerate(zip(work.queues, work.gpus, strict=True))
    return [row for row, (queue, gpus) in rows if is_refused(names[queue], gpus)]


def coming_of(
    work: Workload, row: int, names: Sequence[QueueName], nodes: Sequence[int]
) -> Coming:
    user = work.users[row] if work.users else -1
    limit = work.limits[row] if work.limits and work.limits[row] > 0 else None
    gang = Waiting(
        job=JobId(str(row)),
        shapes=(shape_of(work.gpus[row], nodes),),
        priority=0,
        order=(row, 0),
        queue=names[work.queues[row]],
        user=UserName("" if user < 0 else f"u{user}"),
        limit_seconds=limit,
        holds_seconds=limit,
    )
    return Coming(work.submits[row], gang, work.durations[row])


@dataclass(slots=True, kw_only=True)
class _Books:
    """Counters for the metrics of a replay, updated at each event. `active` counts jobs
    that hold seats."""

    workload: Workload
    nodes: tuple[int, ...]
    free: list[int]
    on_event: Callable[[ReplayEvent], None] | None
    ended: dict[int, float] = field(default_factory=dict)
    begun: dict[int, tuple[float, float]] = field(default_factory=dict)
    windows: list[float] = field(default_factory=lambda: [0.0] * WINDOWS)
    now: float = 0.0
    submitted: int = 0
    active: int = 0
    preemptions: int = 0
    failures: int = 0
    held: float = 0.0
    lost: float = 0.0
    idle: float = 0.0
    split: float = 0.0

    def hear(self, happened: Happened) -> None:
        job = int(happened.job)
        self._pass_time(happened.at)
        sign = -1 if happened.kind == JobClass.STARTED else 1
        for seat in happened.seats:
            self.free[int(seat.node)] += sign * len(seat.gpus)
        if happened.kind == JobClass.STARTED:
            self.active += 1
            self.begun[job] = (happened.at, happened.service)
        else:
            self.active -= 1
            self._stop(job, happened)
        if self.on_event is not None:
            self._log(self.on_event, job, happened)

    def _stop(self, job: int, happened: Happened) -> None:
        began, service_before = self.begun.pop(job)
        worked = happened.service - service_before
        self.lost += (happened.at - began - worked) * self.workload.gpus[job]
        if happened.kind == JobClass.ENDED:
            self.ended[job] = happened.at
        elif happened.kind == JobClass.FAILED:
            self.failures += 1
        else:
            self.preemptions += 1

    def _pass_time(self, until: float) -> None:
        """Advance the time to `until`, and count the jobs submitted by then. A job
        waits if more jobs were submitted than hold seats or have ended."""
        submits = self.workload.submits
        while self.submitted < len(submits) and submits[self.submitted] <= until:
            self._count(submits[self.submitted])
            self.submitted += 1
        self._count(until)

    def _count(self, until: float) -> None:
        horizon = self.workload.submits[-1]
        begun, span_end = min(self.now, horizon), min(until, horizon)
        self.now = max(self.now, until)
        if span_end <= begun:
            return
        idle = sum(self.free)
        used_gpus = sum(self.nodes) - idle
        self.held += (span_end - begun) * used_gpus
        if self.submitted > self.active + len(self.ended):
            self.idle += (span_end - begun) * idle
            rows = zip(self.free, self.nodes, strict=True)
            self.split += (span_end - begun) * sum(
                free_gpus for free_gpus, size in rows if free_gpus < size
            )
        wide = horizon / WINDOWS
        for window in range(int(begun / wide), min(WINDOWS, int(span_end / wide) + 1)):
            overlap_seconds = min(span_end, (window + 1) * wide) - max(
                begun, window * wide
            )
            self.windows[window] += max(0.0, overlap_seconds) * used_gpus

    def _log(
        self, on_event: Callable[[ReplayEvent], None], job: int, one: Happened
    ) -> None:
        kind, starts = _KINDS[one.kind], one.kind == JobClass.STARTED
        for seat in one.seats if starts else one.seats[:1]:
            node, gpus = (int(seat.node), len(seat.gpus)) if starts else (-1, 0)
            on_event(
                ReplayEvent(
                    at=one.at,
                    kind=kind,
                    job=job,
                    node=node,
                    gpus=gpus,
                    service=one.service,
                )
            )

    def outcome(self) -> ReplayOutcome:
        window_capacity = (
            self.workload.submits[-1] * sum(self.nodes) / WINDOWS if self.ended else 0.0
        )
        return ReplayOutcome(
            workload=self.workload,
            nodes=self.nodes,
            ended=[self.ended[row] for row in range(len(self.workload.submits))],
            preemptions=self.preemptions,
            held_gpu_seconds=self.held,
            lost_gpu_seconds=self.lost,
            failures=self.failures,
            used=[
                window / window_capacity if window_capacity else 0.0
                for window in self.windows
            ],
            fragmentation=self.split / self.idle if self.idle else 0.0,
        )
