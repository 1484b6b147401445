"""Placement of a request in the cluster: all of its seats or none. Nothing is taken
yet.

The seats are written into `out_node` and `out_mask` of the cluster; `take_all` takes
them.
"""

from typing import Final

from corral.schedule.arrays.cluster import (
    BLOCK,
    WHOLE,
    ClusterArrays,
    share_millis,
    take,
)
from corral.schedule.arrays.compiled import compiled
from corral.schedule.arrays.fit import ColumnRequest, cost, first_bucket, fits, mask_of
from corral.schedule.arrays.fragmentation import Demand
from corral.schedule.columns.topology import choose

# nodes that fit are weighed, the fullest first; 2,048 packed no better
ENOUGH: Final = 256


@compiled
def place(cluster: ClusterArrays, demand: Demand, ask: ColumnRequest) -> int:
    """Find seats for the request and write them into the cluster. Return their number;
    0 if not all fit."""
    if ask.nodes == 1:
        node = _find_best_node(cluster, demand, ask)
        if node < 0:
            return 0
        cluster.out_node[0] = node
    elif not _place_gang(cluster, ask):
        return 0
    for seat in range(ask.nodes):
        cluster.out_mask[seat] = mask_of(cluster, demand, ask, cluster.out_node[seat])
    return ask.nodes


@compiled
def take_all(cluster: ClusterArrays, ask: ColumnRequest) -> None:
    """Take the seats that `place` has just found."""
    for seat in range(ask.nodes):
        node = cluster.out_node[seat]
        millis = WHOLE if ask.gpus else share_millis(ask.share, cluster.slices[node])
        take(
            cluster,
            node,
            cluster.out_mask[seat],
            millis,
            ask.cpu,
            ask.memory,
            ask.alone,
        )


@compiled
def _find_best_node(cluster: ClusterArrays, demand: Demand, ask: ColumnRequest) -> int:
    """Return the node on which a seat of the request adds the least waste; the first
    one of equals. Return -1 if the seat fits on no node."""
    best_node, least_waste, weighed, width = -1, 1e300, 0, cluster.blocks + 1
    start, likes = ask.group * cluster.nodes, cluster.likes[ask.group] > 0
    for bucket in range(first_bucket(ask), cluster.buckets):
        if not cluster.count[bucket * width + cluster.blocks]:
            continue
        for block in range(cluster.blocks):
            enough = weighed >= ENOUGH
            if not cluster.count[bucket * width + block] or (enough and not likes):
                continue
            for node in range(block * BLOCK, min(cluster.nodes, (block + 1) * BLOCK)):
                if enough and not cluster.preferred[start + node]:
                    continue
                if cluster.bucket[node] == bucket and fits(cluster, ask, node):
                    waste = cost(cluster, demand, ask, node)
                    weighed += 1 * (cluster.suspicion[node] == 0)
                    if waste < least_waste:
                        best_node, least_waste = node, waste
    return best_node


@compiled
def _place_gang(cluster: ClusterArrays, ask: ColumnRequest) -> bool:
    """Choose nodes for a gang; use nodes under suspicion only where necessary. Return
    whether it fits."""
    open_nodes, width = 0, cluster.blocks + 1
    for bucket in range(first_bucket(ask), cluster.buckets):
        open_nodes += cluster.count[bucket * width + cluster.blocks]
    if open_nodes < ask.nodes:
        return False
    clean, found_count = _find_fitting_nodes(cluster, ask)
    if clean >= ask.nodes and choose(cluster, ask, clean):
        return True
    return clean < found_count and choose(cluster, ask, found_count)


@compiled
def _find_fitting_nodes(cluster: ClusterArrays, ask: ColumnRequest) -> tuple[int, int]:
    """Write the rows of nodes where the request fits into `found`: preferred nodes,
    then others, then suspected nodes; the fullest first. Return the number of nodes
    that are not suspected, and the number of all."""
    found_count, width = 0, cluster.blocks + 1
    for bucket in range(first_bucket(ask), cluster.buckets):
        if not cluster.count[bucket * width + cluster.blocks]:
            continue
        for block in range(cluster.blocks):
            if not cluster.count[bucket * width + block]:
                continue
            for node in range(block * BLOCK, min(cluster.nodes, (block + 1) * BLOCK)):
                if cluster.bucket[node] == bucket and fits(cluster, ask, node):
                    cluster.ordered[found_count] = node
                    found_count += 1
    start = ask.group * cluster.nodes
    kept_count, clean = 0, 0
    for rank in range(3):
        for found_index in range(found_count):
            node = cluster.ordered[found_index]
            likes = 1 - 1 * cluster.preferred[start + node]
            if (2 if cluster.suspicion[node] > 0 else likes) == rank:
                cluster.found[kept_count] = node
                kept_count += 1
        clean = kept_count if rank == 1 else clean
    return clean, found_count
