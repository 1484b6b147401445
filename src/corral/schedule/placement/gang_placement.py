"""Placement of a gang on the free capacity: all of its seats or none. Nothing is taken
yet."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from corral.domain.attempt import Seat
from corral.domain.ids import NodeId
from corral.domain.placement_constraints import Mode, Topology
from corral.domain.resources import Shape
from corral.schedule.capacity.node_room import NodeRoom
from corral.schedule.placement.node_types import NodeTypes
from corral.schedule.placement.topology import in_order
from corral.schedule.waiting import Waiting


def find_seats(
    rooms: Sequence[NodeRoom], gang: Waiting, shape: Shape
) -> tuple[Seat, ...]:
    """Return seats for the whole gang in this shape; empty if it has no room. `rooms`
    are in the order of best fit."""
    resources = shape.resources
    min_whole_gpus = 0 if resources.is_share else resources.gpus
    if shape.nodes == 1 and gang.takes_any:
        return _first_seat(rooms, gang, shape)
    able = [
        room for room in rooms if room.whole >= min_whole_gpus and may_use(room, gang)
    ]
    if len(able) < shape.nodes:
        return ()
    if gang.spreads:
        able.sort(key=lambda room: room.guests[gang.kin])
    # domains are counted, so each of their nodes must really have room
    if shape.nodes > 1:
        exclusive = gang.place.exclusive
        able = [
            room
            for room in able
            if room.seat(resources, exclusive=exclusive) is not None
        ]
    for group in _of_one_mark(able, gang, shape):
        for candidate_rooms in in_order(
            group,
            shape.nodes,
            gang.place.topology,
            avoid=gang.avoid,
            likes=gang.likes,
            of_one_type=resources.gpu_millis > 0,
        ):
            if seats := _gather_seats(candidate_rooms, gang, shape):
                return seats
    return ()


def _first_seat(
    rooms: Sequence[NodeRoom], gang: Waiting, shape: Shape
) -> tuple[Seat, ...]:
    """Return the seat of a gang of one node without placement rules, on the first node
    that has room; empty if no node has. In the order of best fit, suspected nodes come
    last."""
    resources, exclusive = shape.resources, gang.place.exclusive
    min_whole_gpus = 0 if resources.is_share else resources.gpus
    for room in rooms:
        if room.whole >= min_whole_gpus and may_use(room, gang):
            seat = room.seat(resources, exclusive=exclusive)
            if seat is not None:
                return (seat,)
    return ()


def may_use(room: NodeRoom, gang: Waiting) -> bool:
    """Return whether the gang may use the node by its pinned node, labels and
    separation rules, regardless of free room."""
    rule = gang.place
    return (
        gang.pinned_to in (None, room.id)
        and (not rule.constraints or rule.admits(room.labels))
        and not is_apart(room, gang)
    )


def is_apart(room: NodeRoom, gang: Waiting) -> bool:
    """Return whether the gang may not share the node with a job that is on it, by the
    request of either."""
    if room.shunned and room.shunned[gang.kin]:
        return True
    return any(room.guests[name] for name in gang.place.apart_from)


def _gather_seats(
    way: Iterable[NodeRoom], gang: Waiting, shape: Shape
) -> tuple[Seat, ...]:
    """Return the first seats that complete the gang. The gang's first node holds its
    rendezvous and must have a free port. If no node so far has one, the last seat goes
    to a later node with a free port."""
    seats: list[Seat] = []
    leads: Seat | None = None
    for room in way:
        is_last = len(seats) == shape.nodes - 1
        if is_last and shape.nodes > 1 and leads is None and not room.free_ports:
            continue
        seat = room.seat(shape.resources, exclusive=gang.place.exclusive)
        if seat is None:
            continue
        seats.append(seat)
        leads = seat if leads is None and room.free_ports else leads
        if len(seats) == shape.nodes:
            return tuple(sorted(seats, key=lambda one: one is not leads))
    return ()


def _of_one_mark(
    able: list[NodeRoom], gang: Waiting, shape: Shape
) -> Iterator[list[NodeRoom]]:
    """Yield sets of nodes where the gang's shared path is the same storage (has one
    mark); all nodes if the gang needs no shared path."""
    path = gang.shared_path
    if path is None or (shape.nodes == 1 and gang.mark is None):
        yield able
        return
    marks = {mark for room in able if (mark := room.mark_of(path))}
    for mark in sorted(marks) if gang.mark is None else [gang.mark]:
        yield [room for room in able if room.mark_of(path) == mark]


def groups(
    rooms: Sequence[NodeRoom], gang: Waiting, shape: Shape
) -> Iterator[list[NodeRoom]]:
    """Yield sets of nodes within which the gang could be placed, regardless of free
    room: nodes of one shared storage, of one domain if the gang requires one, and
    preferably of one GPU type."""
    able = [
        room
        for room in rooms
        if gang.pinned_to in (None, room.id) and gang.place.admits(room.labels)
    ]
    topology = gang.place.topology
    topology = topology if topology.mode == Mode.REQUIRE else Topology()
    for group in _of_one_mark(able, gang, shape):
        yield from in_order(
            group, shape.nodes, topology, of_one_type=shape.gpu_millis > 0
        )


def nearest_to_free(
    rooms: Iterable[NodeRoom], gang: Waiting, shape: Shape, fleet: NodeTypes
) -> frozenset[NodeId]:
    """Return the emptiest suitable nodes, where the gang is closest to its seats when
    other jobs end; an empty set if it can never be placed."""
    could = (
        room
        for room in _emptiest_first(rooms)
        if fleet.could_seat(room.id, shape.resources)
        and gang.pinned_to in (None, room.id)
        and gang.place.admits(room.labels)
    )
    if gang.place.topology.mode == Mode.REQUIRE:
        candidate_groups: Iterable[list[NodeRoom]] = in_order(
            list(could), shape.nodes, gang.place.topology
        )
    else:
        candidate_groups = [list(islice(could, shape.nodes))]
    best_rooms: list[NodeRoom] = []
    for candidate_rooms in candidate_groups:
        chosen = candidate_rooms[: shape.nodes]
        if len(chosen) == shape.nodes and (
            not best_rooms
            or _total_free_millis(chosen) > _total_free_millis(best_rooms)
        ):
            best_rooms = chosen
    return frozenset(room.id for room in best_rooms)


def _emptiest_first(rooms: Iterable[NodeRoom]) -> Iterator[NodeRoom]:
    """Yield rooms, the emptiest first; among equals by the lowest id. Sorting is lazy,
    because most nodes are full and the search rarely goes far."""
    by_free: dict[int, list[NodeRoom]] = defaultdict(list)
    for room in rooms:
        by_free[room.free_millis].append(room)
    for free_millis in sorted(by_free, reverse=True):
        yield from sorted(by_free[free_millis], key=lambda room: room.id)


def _total_free_millis(rooms: Sequence[NodeRoom]) -> int:
    return sum(room.free_millis for room in rooms)
