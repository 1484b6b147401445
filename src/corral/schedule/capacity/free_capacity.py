"""Free capacity of all nodes that take work. It is kept from one scheduling pass to the
next, sorted in the order of best fit."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from corral.domain.ids import NodeId
from corral.schedule.capacity.node_room import NodeRoom

_FEW = 8  # changes of up to 1 in N rooms are inserted in order; more cause a full sort


def fullness(room: NodeRoom) -> tuple[int, int, int, NodeId]:
    """Return the sort key of a node for best fit: nodes with lower keys are used first.
    No two nodes have the same key."""
    return room.fullness


def _shunned_names(room: NodeRoom) -> Iterable[str]:
    return room.shunned.keys()


@dataclass(frozen=True, slots=True)
class Floor:
    """Free capacity of all nodes that accept work, at one moment. Neither the Floor nor
    its rooms are ever changed: a scheduling pass copies each room before it changes the
    room.

    `kinds` maps each GPU type to the number of nodes that have it. `shunned` maps each
    job name to the number of nodes with a job that must not share a node with jobs of
    that name.
    """

    by_id: Mapping[NodeId, NodeRoom] = field(default_factory=dict)
    rooms: Sequence[NodeRoom] = ()
    kinds: Counter[str] = field(default_factory=Counter)
    shunned: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, rooms: Iterable[NodeRoom]) -> "Floor":
        by_id = {room.id: room for room in rooms}
        rooms = sorted(by_id.values(), key=fullness)
        kinds = Counter(chain.from_iterable(room.kinds for room in rooms))
        return cls(
            by_id,
            rooms,
            kinds,
            Counter(chain.from_iterable(map(_shunned_names, rooms))),
        )

    def changed(self, come: Iterable[NodeRoom], gone: Iterable[NodeId]) -> "Floor":
        """Return a new floor in which the rooms `come` replace those of the same nodes,
        and the rooms of the nodes in `gone` are left out."""
        by_id, kinds, shunned = dict(self.by_id), self.kinds.copy(), self.shunned.copy()
        new_rooms = {room.id: room for room in come}
        node_rooms = [by_id.pop(node) for node in {*gone, *new_rooms} if node in by_id]
        for room in node_rooms:
            kinds.subtract(room.kinds)
            shunned.subtract(_shunned_names(room))
        for room in new_rooms.values():
            kinds.update(room.kinds)
            shunned.update(_shunned_names(room))
        by_id.update(new_rooms)
        if (len(node_rooms) + len(new_rooms)) * _FEW > len(by_id):
            return Floor(by_id, sorted(by_id.values(), key=fullness), +kinds, +shunned)
        ordered = list(self.rooms)
        for room in node_rooms:
            del ordered[bisect_left(ordered, room.fullness, key=fullness)]
        for room in new_rooms.values():
            insort(ordered, room, key=fullness)
        return Floor(by_id, ordered, +kinds, +shunned)
