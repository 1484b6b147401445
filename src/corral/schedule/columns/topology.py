"""Rows that fit -> those that a gang takes: near to each other, or spread, or all or
nothing.

PREFER and REQUIRE take the smallest domain that holds the gang whole: an NVLink domain,
a rack, a pod; among equal ones that with the least left over, so that larger gangs find
room. A gang that spans domains uses as few of them as can be, at each level. Nodes of
one GPU type go first.
"""

from corral.schedule.arrays.cluster import ANYWHERE, NVLINK, RACK, ClusterArrays
from corral.schedule.arrays.compiled import compiled
from corral.schedule.arrays.fit import REQUIRE, SPREAD, ColumnRequest


@compiled
def choose(cluster: ClusterArrays, ask: ColumnRequest, found: int) -> bool:
    """Put the gang's rows into `out_node`, from the first `found` of the rows that
    fit."""
    best_type, best_level, best_place, least = -1, ANYWHERE + 1, -1, 0
    for kind in range(
        -1 if cluster.types == 1 else 0, cluster.types if cluster.types > 1 else 0
    ):
        size = _size_of_type(cluster, found, kind)
        if size < ask.nodes:
            continue
        level, place, left_over = _lowest_level_domain(cluster, ask, found, kind, size)
        if level < best_level or (level == best_level and left_over < least):
            best_type, best_level, best_place, least = kind, level, place, left_over
    if best_level > ANYWHERE and cluster.types > 1:
        best_level, best_place, least = _lowest_level_domain(
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
    for at in range(found):
        size += 1 * _of_type(cluster, cluster.found[at], kind)
    return size


@compiled
def _lowest_level_domain(
    cluster: ClusterArrays, ask: ColumnRequest, found: int, kind: int, size: int
) -> tuple[int, int, int]:
    """The lowest level with a domain that holds the gang, that domain, and what it
    leaves over."""
    last = ask.level if ask.topology == REQUIRE else ANYWHERE
    if ask.topology != SPREAD:
        for level in range(min(ANYWHERE, last + 1)):
            place = _tightest_domain(cluster, found, kind, level, ask.nodes)
            if place >= 0:
                return level, place, cluster.tally[place] - ask.nodes
    if last < ANYWHERE or size < ask.nodes:
        return ANYWHERE + 1, -1, 0
    return ANYWHERE, -1, size - ask.nodes


@compiled
def _tightest_domain(
    cluster: ClusterArrays, found: int, kind: int, level: int, wanted: int
) -> int:
    """The domain of the level with the fewest rows that are enough, the first of
    equals; or -1."""
    for at in range(found):
        cluster.tally[cluster.domain[level * cluster.nodes + cluster.found[at]]] = 0
    for at in range(found):
        node = cluster.found[at]
        if _of_type(cluster, node, kind):
            cluster.tally[cluster.domain[level * cluster.nodes + node]] += 1
    best = -1
    for at in range(found):
        place = cluster.domain[level * cluster.nodes + cluster.found[at]]
        less = best < 0 or cluster.tally[place] < cluster.tally[best]
        if less and cluster.tally[place] >= wanted:
            best = int(place)
    return best


@compiled
def _filter_nodes(
    cluster: ClusterArrays, found: int, kind: int, level: int, place: int
) -> int:
    """Drop what is not of the type or not in the domain; the number of rows kept, in
    order."""
    kept_count = 0
    for at in range(found):
        node = cluster.found[at]
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
    """Whole domains, the largest first, until the rest fits into one; then the same
    inside that."""
    seats = 0
    for below in range(level - 1, NVLINK - 1, -1):
        place = _tightest_domain(cluster, kept_count, -1, below, wanted - seats)
        while place < 0:
            place = _largest_domain(cluster, kept_count, below)
            seats, kept_count = _take_domain(cluster, seats, kept_count, below, place)
            place = _tightest_domain(cluster, kept_count, -1, below, wanted - seats)
        kept_count = _filter_nodes(cluster, kept_count, -1, below, place)
    for seat in range(seats, wanted):
        cluster.out_node[seat] = cluster.found[seat - seats]


@compiled
def _largest_domain(cluster: ClusterArrays, kept: int, level: int) -> int:
    """The domain with the most rows, the first of equals; `tally` is as `_tightest_domain`
    left it."""
    best = cluster.domain[level * cluster.nodes + cluster.found[0]]
    for at in range(kept):
        place = cluster.domain[level * cluster.nodes + cluster.found[at]]
        if cluster.tally[place] > cluster.tally[best]:
            best = place
    return int(best)


@compiled
def _take_domain(
    cluster: ClusterArrays, seats: int, kept: int, level: int, place: int
) -> tuple[int, int]:
    """All rows of the domain get seats; gives the number of seats so far and of rows
    left."""
    left_over = 0
    for at in range(kept):
        node = cluster.found[at]
        if cluster.domain[level * cluster.nodes + node] == place:
            cluster.out_node[seats] = node
            seats += 1
        else:
            cluster.found[left_over] = node
            left_over += 1
    return seats, left_over


@compiled
def _spread_over_racks(cluster: ClusterArrays, wanted: int, kept: int) -> None:
    """Each seat into the rack with the fewest of them so far, the first of equals."""
    for at in range(kept):
        cluster.tally[cluster.domain[RACK * cluster.nodes + cluster.found[at]]] = 0
    for seat in range(wanted):
        best = 0
        for at in range(1, kept - seat):
            least = cluster.tally[
                cluster.domain[RACK * cluster.nodes + cluster.found[best]]
            ]
            if (
                cluster.tally[cluster.domain[RACK * cluster.nodes + cluster.found[at]]]
                < least
            ):
                best = at
        node = cluster.found[best]
        cluster.tally[cluster.domain[RACK * cluster.nodes + node]] += 1
        cluster.out_node[seat] = node
        for at in range(best, kept - seat - 1):
            cluster.found[at] = cluster.found[at + 1]
