"""Generated clusters and asks, and the plain answers that the columns are held
against."""

from itertools import combinations

from hypothesis import strategies as st

from corral.schedule.arrays.cluster import (
    BLOCK,
    NOWHERE,
    NVLINK,
    POD,
    RACK,
    STEPS,
    WHOLE,
    ClusterArrays,
    NodeColumns,
    bucket_of,
    cluster_of,
    share_millis,
)
from corral.schedule.arrays.fit import PREFER, REQUIRE, SPREAD, ColumnRequest
from corral.schedule.arrays.fragmentation import Demand, arrive, new_demand
from corral.schedule.columns.placement import place, take_all

Taken = tuple[int, int, int, ColumnRequest]  # node, mask, millis, ask


@st.composite
def rows(draw: st.DrawFn, *, most: int = 6) -> list[NodeColumns]:
    """Nodes whose racks lie in one pod each, and NVLink domains in one rack each."""
    made = []
    for at in range(draw(st.integers(1, most))):
        rack = draw(st.integers(0, 2))
        gpus = draw(st.sampled_from([0, 1, 2, 4]))
        made.append(
            NodeColumns(
                gpus=gpus,
                cpu_millis=draw(st.sampled_from([2000, 8000, 16000])),
                memory_mib=draw(st.sampled_from([1000, 4000])),
                gpu_type=draw(st.integers(0, 1)),
                slices=draw(st.sampled_from([1, 7, 1000])),
                nvlink=rack * 8 + draw(st.integers(0, 1)) * (at + 1),
                rack=rack,
                pod=rack // 2,
                gpu_groups=tuple(draw(st.integers(0, 1)) for _ in range(gpus)),
            )
        )
    return made


@st.composite
def asks(draw: st.DrawFn) -> ColumnRequest:
    share = draw(st.sampled_from([0, 0, 143, 250, 500, 810]))
    return ColumnRequest(
        nodes=draw(st.sampled_from([1, 1, 1, 2, 3])),
        gpus=0 if share else draw(st.integers(0, 4)),
        share=share,
        cpu=draw(st.sampled_from([0, 1000, 4000, 9000])),
        memory=draw(st.sampled_from([0, 500, 2000])),
        group=draw(st.integers(0, 1)),
        alone=draw(st.sampled_from([False, False, False, True])),
        topology=draw(st.sampled_from([PREFER, REQUIRE, SPREAD])),
        level=draw(st.sampled_from([NVLINK, RACK, POD])),
    )


def put(cluster: ClusterArrays, demand: Demand, ask: ColumnRequest) -> list[Taken]:
    """The seats that the ask got, taken; or none."""
    arrive(demand, ask.gpus, ask.share, ask.cpu, ask.memory, ask.nodes)
    seats = place(cluster, demand, ask)
    got = []
    for seat in range(seats):
        node, mask = int(cluster.out_node[seat]), int(cluster.out_mask[seat])
        millis = (
            WHOLE if ask.gpus else share_millis(ask.share, int(cluster.slices[node]))
        )
        got.append((node, mask, millis, ask))
    if seats:
        take_all(cluster, ask)
    return got


def new_state(
    nodes: list[NodeColumns], masked: set[int]
) -> tuple[ClusterArrays, Demand]:
    """Rows in `masked` take nobody of class 1."""
    cluster = cluster_of(nodes, classes=2)
    for row in range(len(nodes)):
        cluster.eligible[len(nodes) + row] = row not in masked
    return cluster, new_demand()


def could_hold(cluster: ClusterArrays, ask: ColumnRequest, node: int) -> bool:
    """Written apart from the core's own `fits`."""
    free = [
        int(cluster.free_gpu[node * cluster.max_gpus + i])
        for i in range(cluster.gpus[node])
    ]
    if (
        cluster.alone[node]
        or not cluster.usable[node]
        or (ask.alone and cluster.seats[node])
    ):
        return False
    if not cluster.eligible[ask.group * cluster.nodes + node]:
        return False
    if cluster.free_cpu[node] < ask.cpu or cluster.free_memory[node] < ask.memory:
        return False
    if ask.share:
        millis = share_millis(ask.share, int(cluster.slices[node]))
        return millis > 0 and any(one >= millis for one in free)
    return free.count(WHOLE) >= ask.gpus


def exists(cluster: ClusterArrays, ask: ColumnRequest) -> bool:
    """By trying all sets of nodes."""
    able = [node for node in range(cluster.nodes) if could_hold(cluster, ask, node)]
    for chosen in combinations(able, ask.nodes):
        domains = {
            int(cluster.domain[ask.level * cluster.nodes + node]) for node in chosen
        }
        if ask.nodes == 1 or ask.topology != REQUIRE or len(domains) == 1:
            return True
    return False


def counted(
    cluster: ClusterArrays,
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Free whole GPUs, free thousandths, counts and idle nodes a rack, all from
    `free_gpu`."""
    width = cluster.blocks + 1
    whole, millis = [], []
    counts, idle = [0] * (cluster.buckets * width), [0] * cluster.racks
    for node in range(cluster.nodes):
        start = node * cluster.max_gpus
        free = [int(cluster.free_gpu[start + i]) for i in range(cluster.gpus[node])]
        whole.append(free.count(WHOLE))
        millis.append(sum(free))
        bucket = int(bucket_of(cluster, node))
        if bucket != NOWHERE:
            counts[bucket * width + node // BLOCK] += 1
            counts[bucket * width + cluster.blocks] += 1
        if cluster.gpus[node] and bucket == STEPS + cluster.gpus[node]:
            idle[int(cluster.domain[RACK * cluster.nodes + node])] += 1
    return whole, millis, counts, idle
