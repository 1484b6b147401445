"""The order in which a gang should take the nodes that fit: near to each other, or
spread.

The choice is the same as the one that `topology` makes over columns. PREFER and REQUIRE
take the smallest domain that holds the whole gang: an NVLink domain, a rack, a pod;
among equal domains the one with the least left over. A gang that spans several domains
uses as few of them as possible. Nodes of one GPU type come first; suspected nodes, and
nodes that the gang avoids, are used only if necessary.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from corral.domain.ids import NodeId
from corral.domain.placement_constraints import Labels, Level, Mode, Topology
from corral.schedule.capacity.node_room import NodeRoom

LEVELS: Final = (Level.NVLINK, Level.RACK, Level.POD)  # the smallest first
_ANYWHERE: Final = len(LEVELS)
Domain = tuple[str, ...]


def domain_of(id: NodeId, labels: Labels, level: Level) -> Domain:
    """Return the domain (such as a rack) of a node at this level. A node without the
    level's label forms a domain of its own.

    The domain includes the names of the levels above, because a rack name may occur
    again in another pod, and an NVLink domain's name in another rack.
    """
    level_index = LEVELS.index(level)
    if level not in labels:
        return ("", id)
    return tuple(labels.get(above, "") for above in LEVELS[level_index:])


def in_order(
    able: Sequence[NodeRoom],
    nodes: int,
    topology: Topology,
    *,
    avoid: Sequence[NodeId] = (),
    likes: frozenset[NodeId] = frozenset(),
    of_one_type: bool = True,
) -> Iterator[list[NodeRoom]]:
    """Yield choices of nodes on which a gang of `nodes` nodes could be placed, the best
    choice first. Each choice is a list of rooms, in the order in which they should be
    used.

    Args:
        able: nodes with room for one seat of the gang, the best fit first.
        topology: how close together the nodes must be.
        avoid: nodes on which this gang has failed, the newest failure last. They are
            used after all nodes without failures; the oldest failure comes first.
        likes: nodes that are preferred among nodes in equally small domains.
        of_one_type: prefer nodes with GPUs of one type; True for a gang with GPUs.
    """
    if likes:
        able = sorted(able, key=lambda room: room.id not in likes)
    failed = {id: failure_rank for failure_rank, id in enumerate(avoid)}
    clean = [room for room in able if not room.suspicion and room.id not in failed]
    if len(clean) < len(able):
        other_rooms = [room for room in able if room.suspicion or room.id in failed]
        other_rooms.sort(key=lambda room: failed.get(room.id, -1))
        if nodes == 1:
            yield [*clean, *other_rooms]
            return
        yield from _by_type(clean, nodes, topology, of_one_type)
        able = [*clean, *other_rooms]
    yield from _by_type(able, nodes, topology, of_one_type)


def _by_type(
    able: Sequence[NodeRoom], nodes: int, topology: Topology, of_one_type: bool
) -> Iterator[list[NodeRoom]]:
    if nodes == 1:
        yield list(able)
        return
    kinds = (
        sorted({kind for room in able for kind in room.kinds}) if of_one_type else []
    )
    if len(kinds) > 1:
        groups = [[room for room in able if kind in room.kinds] for kind in kinds]
        domain_candidates = [
            candidate
            for group in groups
            for candidate in _candidate_domains(group, nodes, topology)
        ]
        yield from (
            rooms for _, _, rooms in sorted(domain_candidates, key=lambda one: one[:2])
        )
    yield from (rooms for _, _, rooms in _candidate_domains(able, nodes, topology))


def _candidate_domains(
    able: Sequence[NodeRoom], nodes: int, topology: Topology
) -> Iterator[tuple[int, int, list[NodeRoom]]]:
    """Yield (level, number of nodes left over, rooms) for each domain that holds the
    whole gang, the smallest domain first."""
    if len(able) < nodes:
        return
    if topology.mode == Mode.SPREAD:
        yield _ANYWHERE, len(able) - nodes, _spread_over_racks(able)
        return
    widest_level = (
        LEVELS.index(topology.within) if topology.mode == Mode.REQUIRE else _ANYWHERE
    )
    for level_index, level in enumerate(LEVELS[: widest_level + 1]):
        groups = [
            group
            for domain, group in _rooms_by_domain(able, level).items()
            if len(group) >= nodes and (domain[0] or topology.mode != Mode.REQUIRE)
        ]
        for group in sorted(groups, key=len):
            yield (
                level_index,
                len(group) - nodes,
                _pack_rooms(group, nodes, level_index),
            )
    if widest_level == _ANYWHERE:
        yield _ANYWHERE, len(able) - nodes, _pack_rooms(able, nodes, _ANYWHERE)


def _rooms_by_domain(
    able: Sequence[NodeRoom], level: Level
) -> dict[Domain, list[NodeRoom]]:
    domains: dict[Domain, list[NodeRoom]] = {}
    for room in able:
        domains.setdefault(domain_of(room.id, room.labels, level), []).append(room)
    return domains


def _pack_rooms(able: Sequence[NodeRoom], nodes: int, below: int) -> list[NodeRoom]:
    """Return the rooms ordered so that the gang uses few domains: whole domains, the
    largest first, until the rest of the gang fits into one domain. The same is repeated
    on the levels inside that domain."""
    first_rooms: list[NodeRoom] = []
    node_rooms, later = list(able), list[NodeRoom]()
    for level in reversed(LEVELS[:below]):
        groups = list(_rooms_by_domain(node_rooms, level).values())
        while max(map(len, groups)) < nodes - len(first_rooms):
            largest = max(groups, key=len)
            groups.remove(largest)
            first_rooms += largest
        enough = [group for group in groups if len(group) >= nodes - len(first_rooms)]
        node_rooms = min(enough, key=len)
        later = [
            room for group in groups if group is not node_rooms for room in group
        ] + later
    return [*first_rooms, *node_rooms, *later]


def _spread_over_racks(able: Sequence[NodeRoom]) -> list[NodeRoom]:
    """Return the rooms in rounds: one node of each rack, then a second node of each
    rack, and so on."""
    racks = list(_rooms_by_domain(able, Level.RACK).values())
    return [
        rack[turn]
        for turn in range(max(map(len, racks)))
        for rack in racks
        if turn < len(rack)
    ]


def largest_domain(nodes: Mapping[NodeId, Labels], level: Level) -> int:
    """Return how many of these nodes lie in the domain of the level that has the most
    of them; 0 if no node has the level's label."""
    count: dict[Domain, int] = {}
    for id, labels in nodes.items():
        if level in labels:
            domain = domain_of(id, labels, level)
            count[domain] = count.get(domain, 0) + 1
    return max(count.values(), default=0)
