"""Answers of the HTTP API about nodes."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

from corral.domain import node as nodes
from corral.domain.node_fault import NodeCondition
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
    slices: int = 0  # number of parts; 0: it is whole
    numa: int = 0  # the NUMA node of the machine that it is near
    taken: bool = False  # by a program that Corral has not started
    jobs: list[str]


class NodeGpus(ForecastView):
    total: int
    free: float
    types: list[str]
    taken: int = 0  # by programs that Corral has not started
    held: list[int] = []  # those that jobs hold, by index
    # by place, latest sensor values; null: unknown
    utilisation: list[float | None] = []
    pretend: bool = False  # they are pretend GPUs, and so are their readings


class NodeConditionView(ForecastView):
    """A detected fault of a node.

    `remedy`: the repair. `restriction`: how far the fault keeps the node from work.
    Times are in seconds since 1970; `mended_at`: when the fault was repaired.
    `to_mend`: the command that repairs the fault; "" if there is no such command.
    `uuid`: the UUID of the GPU if its index may change, as on a node from a batch
    system.
    """

    kind: str
    code: int | None
    gpu: int | None
    device: str
    text: str
    remedy: str
    restriction: str
    count: int
    since: float
    last: float
    mended_at: float | None
    excused: bool
    uuid: str = ""
    to_mend: str = ""

    @classmethod
    def of(cls, one: NodeCondition, to_mend: str = "") -> Self:
        known_fields = cls.model_fields.keys() - {"to_mend"}
        return cls(
            **{name: getattr(one, name) for name in known_fields}, to_mend=to_mend
        )


class NodeView(ForecastView):
    """A node in a listing.

    `has_heartbeat`: this head has received a heartbeat of the node; otherwise the
    values are those of the previous head. `held_whole_by`: the exclusive job that holds
    the node; none of its GPUs is then free. `cpus` and `memory_bytes` are its capacity;
    `taken_*` is the part used outside Corral. `closed`: why the system that lends the
    node gives it no new work now. `health`: its worst fault. `cordoned_by`: "health",
    or "" for a person. `suspect`: the automatic health check would cordon the node, but
    leaves that to a person. `lost_jobs`: jobs that ran there when it died, until it is
    alive again.
    """

    id: str
    address: str
    liveness: str
    has_heartbeat: bool
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
        has_heartbeat: bool,
        jobs: Sequence[str],
        taken_gpu_millis: int,
        held_whole_by: str | None = None,
        held: Iterable[int] = (),
        sensed: NodeSample | None = None,
        **more: Any,
    ) -> Self:
        total = len(node.inventory.gpus)
        condition = node.worst
        used_gpus = total if held_whole_by else taken_gpu_millis / MILLIS_PER_GPU
        return cls(
            id=node.id,
            address=node.address,
            liveness=node.liveness,
            has_heartbeat=has_heartbeat,
            why=node.why,
            since=node.since,
            cordoned=node.cordoned,
            draining=node.draining,
            gpus=NodeGpus(
                total=total,
                free=max(0.0, total - used_gpus - len(node.inventory.taken)),
                types=sorted(node.inventory.gpu_types),
                taken=len(node.inventory.taken),
                held=sorted(set(held)),
                utilisation=_gpu_utilisation(node, sensed) if sensed else [],
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
            health=condition.says if condition is not None else "",
            cordoned_by=node.cordoned_by,
            suspect=node.suspect,
            lost_jobs=list(node.lost_jobs),
            **more,
        )


def _gpu_utilisation(node: nodes.Node, sensed: NodeSample) -> list[float | None]:
    busy_by_gpu = {gpu.index: gpu.utilisation for gpu in sensed.gpus}
    return [busy_by_gpu.get(gpu.index) for gpu in node.inventory.gpus]


class NodeDetail(NodeView):
    """Complete view of a node (`corral node show`).

    `sample`: its latest sensor values; None if none have arrived since the head
    started. `checks`: latest results of active checks. `checkups`: pending checkups.
    `checked_at`: time of its last full check. `shared_account`: the account of all
    users' ranks; "" if each user has an account. `refused_users`: users whose ranks its
    policy refuses, and why.
    """

    boot: str
    devices: list[NodeGpu]
    containment: str
    private_root: bool
    shared_account: str = ""
    refused_users: dict[str, str] = {}
    gpu_shares: bool
    shared: list[str]
    conditions: list[NodeConditionView] = []
    checks: list[CheckResult] = []
    checkups: list[CheckWaiting] = []
    checked_at: float | None = None
    sample: NodeSample | None = None


class Nodes(ForecastView):
    nodes: list[NodeView]
