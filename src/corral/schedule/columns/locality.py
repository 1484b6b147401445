"""Locality delay: how long a gang waits for close nodes before it accepts any nodes.

Delay scheduling (Zaharia et al., EuroSys 2010) by the levels of the network: at first
the gang accepts only one rack, then one pod, then any nodes. A gang does not wait for a
domain that could not hold it even when idle. The wait for close nodes is at most
`pod_seconds`.
"""

from typing import Final, NamedTuple

from corral.schedule.arrays.cluster import ANYWHERE, POD, RACK, ClusterArrays
from corral.schedule.arrays.compiled import compiled
from corral.schedule.arrays.fit import PREFER, REQUIRE, ColumnRequest
from corral.schedule.arrays.fragmentation import Demand
from corral.schedule.columns.placement import place

HOUR: Final = 3600.0


class LocalityDelay(NamedTuple):
    """Times for which a gang waits for nodes that are close together: the seconds in
    which it accepts only nodes of one rack, and the seconds until which it then accepts
    only nodes of one pod."""

    rack_seconds: float = HOUR
    pod_seconds: float = 2 * HOUR


@compiled
def nearest(cluster: ClusterArrays, ask: ColumnRequest) -> int:
    """Return the lowest level (RACK, POD, ANYWHERE) at which one domain could hold the
    gang if all its nodes were idle."""
    for level in (RACK, POD):
        start = level * cluster.nodes
        for node in range(cluster.nodes):
            cluster.tally[cluster.domain[start + node]] = 0
        for node in range(cluster.nodes):
            able = (
                cluster.usable[node]
                and cluster.eligible[ask.group * cluster.nodes + node]
            )
            if able and cluster.gpus[node] >= max(ask.gpus, 1 * (ask.share > 0)):
                cluster.tally[cluster.domain[start + node]] += 1
                if cluster.tally[cluster.domain[start + node]] >= ask.nodes:
                    return level
    return ANYWHERE


@compiled
def level_for(nearest_level: int, waited_seconds: float, delay: LocalityDelay) -> int:
    """Return the level of the domain that the gang may not leave after this wait;
    ANYWHERE means any nodes."""
    if nearest_level <= RACK and waited_seconds < delay.rack_seconds:
        return RACK
    if nearest_level <= POD and waited_seconds < delay.pod_seconds:
        return POD
    return ANYWHERE


@compiled
def place_near(
    cluster: ClusterArrays, demand: Demand, ask: ColumnRequest, level: int
) -> int:
    """Find seats like `place`. A gang that requests no topology itself must get them
    inside one domain of `level`. Return their number, 0 for no room."""
    if ask.nodes == 1 or ask.topology != PREFER or level == ANYWHERE:
        return place(cluster, demand, ask)
    near = ColumnRequest(
        ask.nodes,
        ask.gpus,
        ask.share,
        ask.cpu,
        ask.memory,
        ask.group,
        ask.alone,
        REQUIRE,
        level,
    )
    return place(cluster, demand, near)
