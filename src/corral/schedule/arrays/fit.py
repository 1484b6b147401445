"""Fit of a request on one node: whether it fits, on which GPUs, and how much capacity
that would waste."""

from typing import Final, NamedTuple

from corral.schedule.arrays.cluster import (
    RACK,
    STEPS,
    WHOLE,
    ClusterArrays,
    share_millis,
    step_of,
)
from corral.schedule.arrays.compiled import compiled
from corral.schedule.arrays.fragmentation import LEVEL, Demand, stranded

PREFER, REQUIRE, SPREAD = 0, 1, 2
PREFERENCE: Final = 0.5  # GPUs of waste that a node with the job's data is worth
TIE: Final = 1e-9  # a thousandth of a GPU in a tie: the fuller node first
ROUNDING: Final = 8  # millis that a share may be rounded to a slice by


class ColumnRequest(NamedTuple):
    """The request of a gang: seats on `nodes` nodes, each with `gpus` whole GPUs or
    with one share of a GPU in thousandths.

    `group` is the job class; it determines which nodes are eligible. `alone` requests
    exclusive nodes. `topology` is PREFER (the smallest possible domain), REQUIRE (one
    domain of `level`: NVLINK, RACK or POD), or SPREAD (over racks).
    """

    nodes: int = 1
    gpus: int = 0
    share: int = 0
    cpu: int = 0
    memory: int = 0
    group: int = 0
    alone: bool = False
    topology: int = PREFER
    level: int = RACK


@compiled
def first_bucket(ask: ColumnRequest) -> int:
    """Return the lowest bucket whose nodes may hold the request. The nodes of lower
    buckets have too little free."""
    if ask.gpus:
        return STEPS + ask.gpus
    return max(2, step_of(ask.share - ROUNDING)) if ask.share else 0


@compiled
def fits(cluster: ClusterArrays, ask: ColumnRequest, node: int) -> bool:
    """Return whether one seat of the request fits on the node. The node must be in a
    bucket: usable, and not held exclusively."""
    if cluster.free_cpu[node] < ask.cpu or cluster.free_memory[node] < ask.memory:
        return False
    if ask.gpus > cluster.free_whole[node] or (ask.alone and cluster.seats[node]):
        return False
    if not cluster.eligible[ask.group * cluster.nodes + node]:
        return False
    return ask.share == 0 or _has_free_share(cluster, ask, node)


@compiled
def _has_free_share(cluster: ClusterArrays, ask: ColumnRequest, node: int) -> bool:
    millis = share_millis(ask.share, cluster.slices[node])
    if millis == 0:
        return False
    start, holding = node * cluster.max_gpus, 0
    for gpu_index in range(start, start + cluster.gpus[node]):
        holding += 1 * (cluster.free_gpu[gpu_index] >= millis)
    return holding > 0


@compiled
def share_gpu(cluster: ClusterArrays, demand: Demand, millis: int, node: int) -> int:
    """Return the index of the GPU on this node where a share of `millis` thousandths
    adds the least waste. Among equals, the fullest GPU is chosen, then the first.
    Return -1 if no GPU has room for the share."""
    best_gpu, least_waste, start = -1, 2.0, node * cluster.max_gpus
    for index in range(cluster.gpus[node]):
        free_millis = cluster.free_gpu[start + index]
        if free_millis >= millis:
            waste = share_waste(demand, millis, free_millis) + free_millis * TIE
            if waste < least_waste:
                best_gpu, least_waste = index, waste
    return best_gpu


@compiled
def share_waste(demand: Demand, millis: int, free: int) -> float:
    """Return how much waste, in GPUs, is added by taking `millis` thousandths of a GPU
    of which `free` thousandths are free. Free parts that usual shares cannot use are
    waste."""
    waste_after = demand.part_waste[(free - millis) // LEVEL]
    return float(waste_after - demand.part_waste[free // LEVEL])


@compiled
def cost(
    cluster: ClusterArrays, demand: Demand, ask: ColumnRequest, node: int
) -> float:
    """Return the waste, in GPUs, that the request adds on a node where it fits.
    Placement prefers the node where this is least."""
    millis, waste = ask.gpus * WHOLE, 0.0
    if ask.share:
        millis = share_millis(ask.share, cluster.slices[node])
        index = share_gpu(cluster, demand, millis, node)
        free_millis = cluster.free_gpu[node * cluster.max_gpus + index]
        waste = share_waste(demand, millis, free_millis) + (millis - ask.share) / WHOLE
    free_millis = cluster.free_millis[node]
    cpu, memory = cluster.free_cpu[node], cluster.free_memory[node]
    stranded_before = stranded(demand, free_millis, cpu, memory)
    stranded_after = stranded(
        demand, free_millis - millis, cpu - ask.cpu, memory - ask.memory
    )
    waste += (stranded_after - stranded_before) / WHOLE + cluster.suspicion[node]
    if ask.alone:
        waste += (free_millis - millis) / WHOLE
    if cluster.preferred[ask.group * cluster.nodes + node]:
        waste -= PREFERENCE
    if not millis:
        waste += TIE * WHOLE * cluster.gpus[node]
    rack = cluster.domain[RACK * cluster.nodes + node]
    return float(waste + TIE * (free_millis + cluster.rack_whole[rack]))


@compiled
def mask_of(
    cluster: ClusterArrays, demand: Demand, ask: ColumnRequest, node: int
) -> int:
    """Return the GPUs to take on the node, as a bit mask: one GPU for a share, or whole
    GPUs from as few groups (NUMA node or NIC) as possible."""
    if ask.share:
        millis = share_millis(ask.share, cluster.slices[node])
        return 1 << share_gpu(cluster, demand, millis, node)
    mask, gpus_left = 0, ask.gpus
    while gpus_left > 0:
        group = _group_for(cluster, node, mask, gpus_left)
        for index in range(cluster.gpus[node]):
            gpu_row = node * cluster.max_gpus + index
            is_free = cluster.free_gpu[gpu_row] == WHOLE and not mask >> index & 1
            if is_free and gpus_left > 0 and cluster.gpu_group[gpu_row] == group:
                mask |= 1 << index
                gpus_left -= 1
    return mask


@compiled
def _group_for(cluster: ClusterArrays, node: int, mask: int, wanted: int) -> int:
    """Return the GPU group with the fewest free GPUs that are at least `wanted`. If no
    group has enough, return the group with the most. GPUs in `mask` count as taken."""
    best_group, best_free_count, start = -1, 0, node * cluster.max_gpus
    for index in range(cluster.gpus[node]):
        group, free_count = cluster.gpu_group[start + index], 0
        for other_index in range(cluster.gpus[node]):
            is_free = (
                cluster.free_gpu[start + other_index] == WHOLE
                and not mask >> other_index & 1
            )
            free_count += (
                is_free and cluster.gpu_group[start + other_index] == group
            ) * 1
        better = (
            free_count < best_free_count
            if best_free_count >= wanted
            else free_count > best_free_count
        )
        if best_group < 0 or (
            better and (free_count >= wanted or best_free_count < wanted)
        ):
            best_group, best_free_count = group, free_count
    return best_group
