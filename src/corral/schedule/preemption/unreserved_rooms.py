"""Free capacity of nodes without the seats that are reserved or promised to others."""

from collections.abc import Iterable, Mapping, Sequence

from corral.domain.ids import JobId, NodeId
from corral.schedule.capacity.node_room import NodeRoom, ReservedCapacity
from corral.schedule.decision import Reserved
from corral.schedule.placement.availability import Promise
from corral.schedule.waiting import Waiting


def unreserved_rooms(
    rooms: Sequence[NodeRoom],
    reserved: Mapping[JobId, Reserved],
    kept: Mapping[JobId, Sequence[tuple[NodeId, ReservedCapacity]]],
    kept_for: Mapping[JobId, Waiting],
    firm: Iterable[tuple[Waiting, Promise]],
) -> list[NodeRoom]:
    """Return the free capacity of the nodes, in which all reserved seats count as
    taken, even if other jobs still hold them. Seats promised within a queue's own quota
    (`firm`) count as taken, too. Changed rooms are copies.

    Args:
        kept: The part of each reservation that was free, and is taken from the rooms.
        kept_for: The gangs of the reservations.
    """
    promises = list(firm)
    node_ids = {
        seat.node for reservation in reserved.values() for seat in reservation.seats
    }
    node_ids |= {seat.node for _, promise in promises for seat in promise.seats}
    copies = {room.id: room.copy() if room.id in node_ids else room for room in rooms}
    for job, node_capacities in kept.items():
        for node, kept_capacity in node_capacities:
            if node in copies:
                copies[node].let_go(kept_capacity)
        _take(copies, kept_for[job], reserved[job])
    for gang, promise in promises:
        _take(copies, gang, promise)
    return list(copies.values())


def _take(
    copies: Mapping[NodeId, NodeRoom], gang: Waiting, of: Reserved | Promise
) -> None:
    for seat in of.seats:
        if seat.node in copies:
            copies[seat.node].take(seat, kin=gang.kin, apart_from=gang.place.apart_from)
