"""What is answered of nodes by the HTTP API."""

from collections.abc import Sequence
from typing import Any, Self

from corral.domain import node as nodes
from corral.domain.units import MILLIS_PER_CPU, MILLIS_PER_GPU
from corral.wire.parts import Answer


class NodeGpu(Answer):
    """A GPU and the jobs that hold it."""

    index: int
    uuid: str
    type: str
    memory_bytes: int
    pretend: bool
    slices: int = 0  # into so many parts it is cut; 0: it is whole
    numa: int = 0  # the NUMA node of the machine that it is near
    jobs: list[str]


class NodeGpus(Answer):
    total: int
    free: float
    types: list[str]


class Node(Answer):
    """A node in a listing. `heard`: by this head; else it is as the last one knew it."""

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

    @classmethod
    def of(
        cls,
        node: nodes.Node,
        *,
        heard: bool,
        jobs: Sequence[str],
        taken_gpu_millis: int,
        **more: Any,
    ) -> Self:
        total = len(node.inventory.gpus)
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
                free=total - taken_gpu_millis / MILLIS_PER_GPU,
                types=sorted(node.inventory.gpu_types),
            ),
            cpus=node.inventory.cpu_millis / MILLIS_PER_CPU,
            memory_bytes=node.inventory.memory_bytes,
            labels=dict(node.declared),
            jobs=list(jobs),
            **more,
        )


class NodeDetail(Node):
    """One node whole (`corral node show`)."""

    boot: str
    devices: list[NodeGpu]
    containment: str
    private_root: bool
    gpu_shares: bool
    shared: list[str]


class Nodes(Answer):
    nodes: list[Node]
