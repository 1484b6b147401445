"""Answers of the HTTP API about nodes."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

from corral.domain import node as nodes
from corral.domain.node_fault import Ailment
from corral.domain.telemetry import NodeSample
from corral.domain.units import MILLIS_PER_CPU, MILLIS_PER_GPU
from corral.wire.active_checks import CheckResult, CheckWaiting
from corral.wire.job_parts import ForecastView


class NodeGpu(ForecastView):
    """A GPU and the jobs that hold it."""

    index: int
    uuid: str
    type: str
    memory_bytes: int
    pretend: bool
    slices: int = 0  # into so many parts it is cut; 0: it is whole
    numa: int = 0  # the NUMA node of the machine that it is near
    taken: bool = False  # by a program that Corral has not started
    jobs: list[str]


class NodeGpus(ForecastView):
    total: int
    free: float
    types: list[str]
    taken: int = 0  # by programs that Corral has not started
    held: list[int] = []  # those that jobs hold, by index
    utilisation: list[
        float | None
    ] = []  # of each by its place, as sensors said last; null: unknown
    pretend: bool = False  # they are pretend GPUs, and so are their readings


class NodeAilment(ForecastView):
    """Fault of a node. `remedy`: what repairs it; `bar`: how far it keeps the node from work. Times
    are in seconds since 1970; `mended_at`: since when it is repaired. `to_mend`: the command that
    repairs it; "" if there is none. `uuid`: of the GPU, where its index may change, as on a lent
    node."""

    kind: str
    code: int | None
    gpu: int | None
    device: str
    text: str
    remedy: str
    bar: str
    count: int
    since: float
    last: float
    mended_at: float | None
    excused: bool
    uuid: str = ""
    to_mend: str = ""

    @classmethod
    def of(cls, one: Ailment, to_mend: str = "") -> Self:
        known = cls.model_fields.keys() - {"to_mend"}
        return cls(**{name: getattr(one, name) for name in known}, to_mend=to_mend)


class NodeView(ForecastView):
    """A node in a listing. `heard`: by this head; else it is as the last one knew it.
    `held_whole_by`: the exclusive job that has it; none of its GPUs is free then. `cpus` and
    `memory_bytes` are what it has, `taken_*` what others than Corral hold of that. `closed`: why
    whoever lends the node gives it no new work now. `health`: the worst of what ails it now;
    `cordoned_by`: "health", or "" for a person; `suspect`: health would cordon it, and leaves that
    to a person. `lost_jobs`: those that ran there when it died, until it is alive again."""

    id: str
    address: str
    liveness: str
    heard: bool
    why: str
    since: float
    cordoned: bool
    draining: bool
    gpus: NodeGpus
    cpus: float
    memory_bytes: int
    labels: dict[str, str]
    jobs: list[str]
    held_whole_by: str | None = None
    taken_cpus: float = 0.0
    taken_memory_bytes: int = 0
    closed: str = ""
    health: str = ""
    cordoned_by: str = ""
    suspect: bool = False
    lost_jobs: list[str] = []

    @classmethod
    def of(
        cls,
        node: nodes.Node,
        *,
        heard: bool,
        jobs: Sequence[str],
        taken_gpu_millis: int,
        held_whole_by: str | None = None,
        held: Iterable[int] = (),
        sensed: NodeSample | None = None,
        **more: Any,
    ) -> Self:
        total = len(node.inventory.gpus)
        ails = node.worst
        taken = total if held_whole_by else taken_gpu_millis / MILLIS_PER_GPU
        return cls(
            id=node.id,
            address=node.address,
            liveness=node.liveness,
            heard=heard,
            why=node.why,
            since=node.since,
            cordoned=node.cordoned,
            draining=node.draining,
            gpus=NodeGpus(
                total=total,
                free=max(0.0, total - taken - len(node.inventory.taken)),
                types=sorted(node.inventory.gpu_types),
                taken=len(node.inventory.taken),
                held=sorted(set(held)),
                utilisation=_busy(node, sensed) if sensed else [],
                pretend=node.inventory.pretend,
            ),
            cpus=node.inventory.cpu_millis / MILLIS_PER_CPU,
            memory_bytes=node.inventory.memory_bytes,
            labels=dict(node.declared),
            jobs=list(jobs),
            held_whole_by=held_whole_by,
            taken_cpus=node.inventory.taken_cpu_millis / MILLIS_PER_CPU,
            taken_memory_bytes=node.inventory.taken_memory_bytes,
            closed=node.inventory.closed,
            health=ails.says if ails is not None else "",
            cordoned_by=node.cordoned_by,
            suspect=node.suspect,
            lost_jobs=list(node.lost_jobs),
            **more,
        )


def _busy(node: nodes.Node, sensed: NodeSample) -> list[float | None]:
    said = {gpu.index: gpu.utilisation for gpu in sensed.gpus}
    return [said.get(gpu.index) for gpu in node.inventory.gpus]


class NodeDetail(NodeView):
    """One node whole (`corral node show`). `sample`: what its sensors said last; None when they
    have said nothing since the head was started. `checks`: what active checks have shown last;
    `checkups`: which are before it; `checked_at`: when it was last checked as a whole.
    `shared_account`: the one account of all users' ranks; "" where each user has an account.
    `refused_users`: users whose ranks its policy refuses, and why."""

    boot: str
    devices: list[NodeGpu]
    containment: str
    private_root: bool
    shared_account: str = ""
    refused_users: dict[str, str] = {}
    gpu_shares: bool
    shared: list[str]
    ailments: list[NodeAilment] = []
    checks: list[CheckResult] = []
    checkups: list[CheckWaiting] = []
    checked_at: float | None = None
    sample: NodeSample | None = None


class Nodes(ForecastView):
    nodes: list[NodeView]
