"""Choice of the nodes that a gang takes among those that fit: close to each other,
spread out, or within one domain.

PREFER and REQUIRE take the smallest domain that holds the whole gang: an NVLink domain,
a rack, a pod; among equal ones the domain with the fewest nodes left over, so that
larger gangs find room. A gang that spans domains uses as few of them as possible, at
each level. Nodes of one GPU type are preferred.
"""

from corral.schedule.arrays.cluster import ANYWHERE, NVLINK, RACK, ClusterArrays
from corral.schedule.arrays.compiled import compiled
from corral.schedule.arrays.fit import REQUIRE, SPREAD, ColumnRequest


@compiled
def choose(cluster: ClusterArrays, ask: ColumnRequest, found: int) -> bool:
    """Write the gang's nodes into `out_node`, chosen from the first `found` rows that
    fit. Return whether the gang could be placed."""
    best_type, best_level, best_place, least_left_over = -1, ANYWHERE + 1, -1, 0
    for kind in range(
        -1 if cluster.types == 1 else 0, cluster.types if cluster.types > 1 else 0
    ):
        size = _size_of_type(cluster, found, kind)
        if size < ask.nodes:
            continue
        level, domain, left_over = _lowest_level_domain(cluster, ask, found, kind, size)
        if level < best_level or (level == best_level and left_over < least_left_over):
            best_type, best_level, best_place, least_left_over = (
                kind,
                level,
                domain,
                left_over,
            )
    if best_level > ANYWHERE and cluster.types > 1:
        best_level, best_place, least_left_over = _lowest_level_domain(
            cluster, ask, found, -1, found
        )
    if best_level > ANYWHERE:
        return False
    kept_count = _filter_nodes(cluster, found, best_type, best_level, best_place)
    if ask.topology == SPREAD:
        _spread_over_racks(cluster, ask.nodes, kept_count)
    else:
        _pack_gang(cluster, ask.nodes, kept_count, best_level)
    return True


@compiled
def _of_type(cluster: ClusterArrays, node: int, kind: int) -> bool:
    return bool(kind < 0 or cluster.gpu_type[node] == kind)


@compiled
def _size_of_type(cluster: ClusterArrays, found: int, kind: int) -> int:
    size = 0
    for found_index in range(found):
        size += 1 * _of_type(cluster, cluster.found[found_index], kind)
    return size


@compiled
def _lowest_level_domain(
    cluster: ClusterArrays, ask: ColumnRequest, found: int, kind: int, size: int
) -> tuple[int, int, int]:
    """Return (level, domain, left over) for the smallest domain that has room for the
    gang.

    `domain` is -1 if the gang may use nodes of any domain. `left over` is the number of
    suitable nodes in the domain that the gang does not need. A level above ANYWHERE
    means that there is no room.
    """
    last_level = ask.level if ask.topology == REQUIRE else ANYWHERE
    if ask.topology != SPREAD:
        for level in range(min(ANYWHERE, last_level + 1)):
            domain = _tightest_domain(cluster, found, kind, level, ask.nodes)
            if domain >= 0:
                return level, domain, cluster.tally[domain] - ask.nodes
    if last_level < ANYWHERE or size < ask.nodes:
        return ANYWHERE + 1, -1, 0
    return ANYWHERE, -1, size - ask.nodes


@compiled
def _tightest_domain(
    cluster: ClusterArrays, found: int, kind: int, level: int, wanted: int
) -> int:
    """Return the domain of this level that has the fewest suitable nodes, but at least
    `wanted`; the first one of equals. Return -1 if no domain has enough.

    Nodes are suitable if they are among the first `found` rows of `cluster.found` and
    have the GPU type `kind`.
    """
    for found_index in range(found):
        cluster.tally[
            cluster.domain[level * cluster.nodes + cluster.found[found_index]]
        ] = 0
    for found_index in range(found):
        node = cluster.found[found_index]
        if _of_type(cluster, node, kind):
            cluster.tally[cluster.domain[level * cluster.nodes + node]] += 1
    best_domain = -1
    for found_index in range(found):
        domain = cluster.domain[level * cluster.nodes + cluster.found[found_index]]
        less = best_domain < 0 or cluster.tally[domain] < cluster.tally[best_domain]
        if less and cluster.tally[domain] >= wanted:
            best_domain = int(domain)
    return best_domain


@compiled
def _filter_nodes(
    cluster: ClusterArrays, found: int, kind: int, level: int, place: int
) -> int:
    """Keep, among the found nodes, only those of the GPU type `kind` in the domain
    `place`, in the same order. Return how many are kept."""
    kept_count = 0
    for found_index in range(found):
        node = cluster.found[found_index]
        inside = (
            level == ANYWHERE or cluster.domain[level * cluster.nodes + node] == place
        )
        if inside and _of_type(cluster, node, kind):
            cluster.found[kept_count] = node
            kept_count += 1
    return kept_count


@compiled
def _pack_gang(
    cluster: ClusterArrays, wanted: int, kept_count: int, level: int
) -> None:
    """Assign whole domains of the level, the largest first, until the rest of the gang
    fits into one domain. Then do the same inside that domain at the next lower level.
    """
    seats = 0
    for below in range(level - 1, NVLINK - 1, -1):
        domain = _tightest_domain(cluster, kept_count, -1, below, wanted - seats)
        while domain < 0:
            domain = _largest_domain(cluster, kept_count, below)
            seats, kept_count = _take_domain(cluster, seats, kept_count, below, domain)
            domain = _tightest_domain(cluster, kept_count, -1, below, wanted - seats)
        kept_count = _filter_nodes(cluster, kept_count, -1, below, domain)
    for seat in range(seats, wanted):
        cluster.out_node[seat] = cluster.found[seat - seats]


@compiled
def _largest_domain(cluster: ClusterArrays, kept: int, level: int) -> int:
    """Return the domain with the most nodes left; the first one of equals. `tally` must
    be unchanged since the last call of `_tightest_domain`."""
    best_domain = cluster.domain[level * cluster.nodes + cluster.found[0]]
    for found_index in range(kept):
        domain = cluster.domain[level * cluster.nodes + cluster.found[found_index]]
        if cluster.tally[domain] > cluster.tally[best_domain]:
            best_domain = domain
    return int(best_domain)


@compiled
def _take_domain(
    cluster: ClusterArrays, seats: int, kept: int, level: int, place: int
) -> tuple[int, int]:
    """Assign a seat on each node of the domain `place`. Return the number of seats so
    far, and the number of nodes that are left."""
    left_over = 0
    for found_index in range(kept):
        node = cluster.found[found_index]
        if cluster.domain[level * cluster.nodes + node] == place:
            cluster.out_node[seats] = node
            seats += 1
        else:
            cluster.found[left_over] = node
            left_over += 1
    return seats, left_over


@compiled
def _spread_over_racks(cluster: ClusterArrays, wanted: int, kept: int) -> None:
    """Assign each seat to the rack with the fewest seats so far, the first of equals."""
    for found_index in range(kept):
        cluster.tally[
            cluster.domain[RACK * cluster.nodes + cluster.found[found_index]]
        ] = 0
    for seat in range(wanted):
        best_index = 0
        for found_index in range(1, kept - seat):
            least_seats = cluster.tally[
                cluster.domain[RACK * cluster.nodes + cluster.found[best_index]]
            ]
            if (
                cluster.tally[
                    cluster.domain[RACK * cluster.nodes + cluster.found[found_index]]
                ]
                < least_seats
            ):
                best_index = found_index
        node = cluster.found[best_index]
        cluster.tally[cluster.domain[RACK * cluster.nodes + node]] += 1
        cluster.out_node[seat] = node
        for found_index in range(best_index, kept - seat - 1):
            cluster.found[found_index] = cluster.found[found_index + 1]
