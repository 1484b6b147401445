"""The nodes as columns, and buckets by which a placement skips nodes that cannot hold
it.

Every change goes through `take`, `give` or `refile`; each updates all counts in a few
steps. Nothing here depends on the order of earlier changes: the same free resources
give the same columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from corral.schedule.arrays.compiled import column, compiled

WHOLE: Final = 1000  # thousandths of a GPU
BLOCK: Final = 64  # nodes that are counted together
PARTS: Final = 10  # buckets of nodes with no whole GPU free, by the largest free part
STEPS: Final = 1 + PARTS  # the last bucket without a whole GPU
NVLINK, RACK, POD, ANYWHERE = 0, 1, 2, 3
NOWHERE: Final = -1  # the bucket of nodes that take nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeColumns:
    """The resources of one node, as input for `cluster_of`. Racks are numbered within
    their pod, and NVLink domains within their rack.

    `nvlink` is None if NVLink does not extend beyond the node. `slices` is the number
    of equal parts in which each GPU can be shared (MIG: 7; time or MPS: 1000; 1: only
    whole GPUs). `gpu_groups` gives for each GPU the NUMA node or NIC that is near to
    it; () if all GPUs are alike.
    """

    gpus: int
    cpu_millis: int
    memory_mib: int
    gpu_type: int = 0
    slices: int = 1000
    nvlink: int | None = None
    rack: int = 0
    pod: int = 0
    gpu_groups: tuple[int, ...] = ()


class ClusterArrays(NamedTuple):
    """State of all nodes in columns, for compiled code. The list below shows how each
    flat column is indexed. `max_gpus`, the GPUs of the largest node, is at most 62.

    `domain`: level * nodes + row. `free_gpu`, `gpu_group`: row * max_gpus + index, in
    thousandths. `eligible`, `preferred`: class * nodes + row. `likes`: how many nodes a
    class prefers, see `prefer`. `count`, the number of nodes in a bucket: bucket *
    (blocks + 1) + block; the last entry of a bucket is the sum over all blocks.
    """

    nodes: int
    max_gpus: int
    blocks: int
    buckets: int
    racks: int
    types: int
    gpus: Any
    slices: Any
    gpu_type: Any
    gpu_group: Any
    domain: Any
    free_cpu: Any
    free_memory: Any
    free_gpu: Any
    free_millis: Any
    free_whole: Any
    seats: Any
    usable: Any
    alone: Any
    suspicion: Any
    eligible: Any
    preferred: Any
    likes: Any
    bucket: Any
    count: Any
    rack_whole: Any
    found: Any
    ordered: Any
    tally: Any
    out_node: Any
    out_mask: Any


def cluster_of(rows: Sequence[NodeColumns], *, classes: int = 1) -> ClusterArrays:
    """Return a cluster in which all nodes are free and usable. Every class of jobs may
    use every node until its mask is changed."""
    size, wide = len(rows), max([1, *(row.gpus for row in rows)])
    if wide > 62:
        raise ValueError(
            f"a node has {wide} GPUs; the fast simulation supports at most 62 GPUs per "
            "node; describe this node as several smaller nodes"
        )
    blocks, buckets = -(-size // BLOCK), 1 + STEPS + wide
    types = 1 + max((row.gpu_type for row in rows), default=0)
    domain = _number_domains(rows)
    racks = 1 + max(domain[size : 2 * size], default=0)
    cluster = ClusterArrays(
        nodes=size,
        max_gpus=wide,
        blocks=blocks,
        buckets=buckets,
        racks=racks,
        types=types,
        gpus=_int_column([row.gpus for row in rows]),
        slices=_int_column([row.slices for row in rows]),
        gpu_type=_int_column([row.gpu_type for row in rows]),
        gpu_group=column(size * wide, "int"),
        domain=_int_column(domain),
        free_cpu=_int_column([row.cpu_millis for row in rows]),
        free_memory=_int_column([row.memory_mib for row in rows]),
        free_gpu=column(size * wide, "int"),
        free_millis=_int_column([row.gpus * WHOLE for row in rows]),
        free_whole=_int_column([row.gpus for row in rows]),
        seats=column(size, "int"),
        usable=column(size, "bool", True),
        alone=column(size, "bool", False),
        suspicion=column(size, "float"),
        eligible=column(size * classes, "bool", True),
        preferred=column(size * classes, "bool", False),
        likes=column(classes, "int"),
        bucket=column(size, "int", NOWHERE),
        count=column(buckets * (blocks + 1), "int"),
        rack_whole=column(racks, "int"),
        found=column(size, "int"),
        ordered=column(size, "int"),
        tally=column(1 + max(domain, default=0), "int"),
        out_node=column(size, "int"),
        out_mask=column(size, "int"),
    )
    for row, node in enumerate(rows):
        for index in range(node.gpus):
            cluster.free_gpu[row * wide + index] = WHOLE
            cluster.gpu_group[row * wide + index] = (*node.gpu_groups, *[0] * wide)[
                index
            ]
        refile(cluster, row)
    return cluster


def _number_domains(rows: Sequence[NodeColumns]) -> list[int]:
    """Return the domain numbers, indexed by level and row. Domains with equal numbers
    in different parents get different numbers, so each domain lies in exactly one
    domain of the next level."""
    keys: list[list[tuple[object, ...]]] = [
        [
            (row.pod, row.rack, row_index if row.nvlink is None else (row.nvlink,))
            for row_index, row in enumerate(rows)
        ],
        [(row.pod, row.rack) for row in rows],
        [(row.pod,) for row in rows],
    ]
    numbers = [
        {key: domain_number for domain_number, key in enumerate(dict.fromkeys(level))}
        for level in keys
    ]
    return [
        numbers[level_index][key]
        for level_index, level in enumerate(keys)
        for key in level
    ]


def _int_column(values: Sequence[int]) -> Any:
    int_array = column(len(values), "int")
    for row_index, value in enumerate(values):
        int_array[row_index] = value
    return int_array


@compiled
def bucket_of(cluster: ClusterArrays, node: int) -> int:
    """Return the bucket of a node, a number that describes how much GPU capacity is
    free on the node.

    0: the node has no GPUs; 1: no GPU is free; 2 to STEPS: only parts of GPUs are free,
    ordered by the size of the largest part; STEPS + n: n whole GPUs are free.
    """
    if not cluster.usable[node] or cluster.alone[node]:
        return NOWHERE
    if cluster.free_whole[node]:
        return int(STEPS + cluster.free_whole[node])
    if not cluster.gpus[node]:
        return 0
    largest = 0
    for gpu_index in range(
        node * cluster.max_gpus, node * cluster.max_gpus + cluster.gpus[node]
    ):
        largest = max(largest, cluster.free_gpu[gpu_index])
    return step_of(largest)


@compiled
def step_of(millis: int) -> int:
    return 2 + (millis - 1) * PARTS // WHOLE if millis > 0 else 1


@compiled
def refile(cluster: ClusterArrays, node: int) -> None:
    """Move a node into the bucket that matches its free capacity. Call this after a
    change of `usable`."""
    old_bucket, new_bucket = cluster.bucket[node], bucket_of(cluster, node)
    if old_bucket == new_bucket:
        return
    cluster.bucket[node] = new_bucket
    _update_bucket(cluster, old_bucket, node, -1)
    _update_bucket(cluster, new_bucket, node, 1)
    rack = cluster.domain[RACK * cluster.nodes + node]
    idle = STEPS + cluster.gpus[node]
    cluster.rack_whole[rack] += (new_bucket == idle) * 1 - (old_bucket == idle) * 1


@compiled
def prefer(cluster: ClusterArrays, group: int, node: int, likes: bool) -> None:
    """Set whether the job class `group` prefers this node, for example because the node
    has the data of the class."""
    preference_index = group * cluster.nodes + node
    cluster.likes[group] += likes * 1 - cluster.preferred[preference_index] * 1
    cluster.preferred[preference_index] = likes


@compiled
def _update_bucket(cluster: ClusterArrays, bucket: int, node: int, change: int) -> None:
    if bucket == NOWHERE:
        return
    start = bucket * (cluster.blocks + 1)
    cluster.count[start + node // BLOCK] += change
    cluster.count[start + cluster.blocks] += change


@compiled
def take(
    cluster: ClusterArrays,
    node: int,
    mask: int,
    millis: int,
    cpu: int,
    memory: int,
    alone: bool,
) -> None:
    """Take `millis` thousandths of each GPU in the bit mask `mask`, CPU and memory.
    `alone` makes the node exclusive."""
    lower(cluster, node, mask, millis, cpu, memory, alone)
    refile(cluster, node)


@compiled
def give(
    cluster: ClusterArrays,
    node: int,
    mask: int,
    millis: int,
    cpu: int,
    memory: int,
    alone: bool,
) -> None:
    """Return resources to the node that `take` has taken from it."""
    lift(cluster, node, mask, millis, cpu, memory, alone)
    refile(cluster, node)


@compiled
def lower(
    cluster: ClusterArrays,
    node: int,
    mask: int,
    millis: int,
    cpu: int,
    memory: int,
    alone: bool,
) -> None:
    """Take resources like `take`, but without updating the buckets. This serves to try
    a placement, and `lift` must undo it before the next real placement."""
    _change_free_gpus(cluster, node, mask, -millis)
    cluster.free_cpu[node] -= cpu
    cluster.free_memory[node] -= memory
    cluster.seats[node] += 1
    if alone:
        cluster.alone[node] = True


@compiled
def lift(
    cluster: ClusterArrays,
    node: int,
    mask: int,
    millis: int,
    cpu: int,
    memory: int,
    alone: bool,
) -> None:
    """Undo a call of `lower` with the same arguments."""
    _change_free_gpus(cluster, node, mask, millis)
    cluster.free_cpu[node] += cpu
    cluster.free_memory[node] += memory
    cluster.seats[node] -= 1
    if alone:
        cluster.alone[node] = False


@compiled
def _change_free_gpus(
    cluster: ClusterArrays, node: int, mask: int, millis: int
) -> None:
    start = node * cluster.max_gpus
    for index in range(cluster.gpus[node]):
        if mask >> index & 1:
            old_millis = cluster.free_gpu[start + index]
            cluster.free_gpu[start + index] = old_millis + millis
            cluster.free_millis[node] += millis
            cluster.free_whole[node] += (old_millis + millis == WHOLE) * 1 - (
                old_millis == WHOLE
            ) * 1


@compiled
def share_millis(asked: int, slices: int) -> int:
    """Return how many thousandths of a GPU a share of `asked` thousandths takes if the
    GPU is cut into equal slices; 0 if the GPU allows no shares.

    The share takes as many slices as it needs. A rounding error of half a thousandth in
    the request is accepted (3/7 as 429).
    """
    if slices <= 1:
        return 0
    slice_count = (asked * slices + WHOLE - 1 - slices // 2) // WHOLE
    return max(1, slice_count) * WHOLE // slices
