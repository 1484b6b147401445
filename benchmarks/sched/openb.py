"""The openb traces (Alibaba GPU-v2023) as columns of asks and nodes, and FGD's way of arriving."""

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from corral.domain.ids import BootId, JobId, NodeId
from corral.domain.node import Liveness, Node
from corral.domain.resources import Gpu, Inventory, Resources, Shape
from corral.schedule import Waiting
from corral.schedule.arrays.cluster import WHOLE, ClusterArrays, NodeColumns, cluster_of
from corral.schedule.arrays.fit import ColumnRequest

TRACES = Path(__file__).resolve().parents[3] / "shared/traces"
VARIANTS = (
    "default", "cpu050", "cpu100", "cpu200", "gpushare40", "gpushare60", "gpushare80",
    "gpuspec10", "gpuspec20", "gpuspec25", "multigpu20", "multigpu30", "multigpu40",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pod:
    """GPUs in thousandths; `types`: those it requests, () for any."""

    millis: int
    cpu_millis: int
    memory_mib: int
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    gpus: int
    cpu_millis: int
    memory_mib: int
    type: str


def _amounts(row: dict[str, str]) -> tuple[int, int]:
    return round(float(row["cpus"]) * 1000), round(float(row["mem_gb"]) * 1024)


def machines(traces: Path = TRACES) -> list[Machine]:
    with (traces / "openb2023.nodes.csv").open() as file:
        return [
            Machine(int(row["gpus"]), *_amounts(row), row["gpu_type"])
            for row in csv.DictReader(file)
        ]


def pods(variant: str, traces: Path = TRACES) -> list[Pod]:
    with gzip.open(traces / f"openb2023_{variant}.csv.gz", "rt") as file:
        return [
            Pod(
                round(float(row["gpus"]) * WHOLE),
                *_amounts(row),
                tuple(row["gpu_type"].split("|")) if row["gpu_type"] else (),
            )
            for row in csv.DictReader(file)
        ]


def arrivals(
    of: Sequence[Pod], capacity: int, seed: int, ratio: float = 1.3
) -> list[Pod]:
    """All pods in random order, then pods drawn at random with replacement, until so many GPUs were
    asked for; fewer where the pods alone ask for more (FGD's artifact: shuffle, then tune)."""
    chance = Random(seed)
    line = list(of)
    chance.shuffle(line)
    asked, come = 0, []
    while asked < ratio * capacity:
        pod = line[len(come)] if len(come) < len(line) else chance.choice(of)
        come.append(pod)
        asked += pod.millis
    return come


def classes_of(of: Sequence[Pod]) -> list[tuple[str, ...]]:
    """Class 0 is that of pods without a request."""
    return [(), *sorted({pod.types for pod in of if pod.types})]


def cluster_for(
    nodes: Sequence[Machine], classes: Sequence[tuple[str, ...]]
) -> ClusterArrays:
    types = sorted({node.type for node in nodes})
    rows = [
        NodeColumns(
            gpus=node.gpus,
            cpu_millis=node.cpu_millis,
            memory_mib=node.memory_mib,
            gpu_type=types.index(node.type),
            nvlink=at,
        )
        for at, node in enumerate(nodes)
    ]
    cluster = cluster_of(rows, classes=len(classes))
    for number, request in enumerate(classes[1:], 1):
        for at, node in enumerate(nodes):
            cluster.eligible[number * len(nodes) + at] = node.type in request
    return cluster


def ask_of(pod: Pod, classes: Sequence[tuple[str, ...]]) -> ColumnRequest:
    whole, share = divmod(pod.millis, WHOLE)
    return ColumnRequest(
        gpus=whole,
        share=share,
        cpu=pod.cpu_millis,
        memory=pod.memory_mib,
        group=classes.index(pod.types),
    )


def nodes_of(of: Sequence[Machine]) -> list[Node]:
    """The machines as a head knows them; all of them share their GPUs."""
    return [
        Node(
            id=NodeId(f"n{number:04}"),
            boot=BootId("b"),
            liveness=Liveness.ALIVE,
            inventory=Inventory(
                gpus=tuple(
                    Gpu(index=i, uuid=f"{number}-{i}", type=one.type, memory_bytes=1)
                    for i in range(one.gpus)
                ),
                cpu_millis=one.cpu_millis,
                memory_bytes=one.memory_mib << 20,
                gpu_shares=True,
            ),
        )
        for number, one in enumerate(of)
    ]


def gang_of(pod: Pod, number: int) -> Waiting:
    """A pod as a head knows it: a shape for each type that it requests."""
    asked = Resources(
        gpu_millis=pod.millis,
        cpu_millis=pod.cpu_millis,
        memory_bytes=pod.memory_mib << 20,
    )
    typed = [replace(asked, gpu_type=one) for one in pod.types] if pod.millis else []
    shapes = tuple(Shape(nodes=1, resources=one) for one in typed or [asked])
    return Waiting(
        job=JobId(f"j{number}"), shapes=shapes, priority=0, order=(number, 0)
    )
