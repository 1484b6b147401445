"""The nodes' free capacity in one scheduling pass, in the order of best fit. It shows
what the gang that is tried next may use."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager

from corral.domain.attempt import Seat
from corral.domain.ids import NodeId
from corral.schedule.capacity.free_capacity import Floor, fullness
from corral.schedule.capacity.node_room import NodeRoom
from corral.schedule.placement.availability import Availability
from corral.schedule.waiting import Waiting


class PassView:
    """The free capacity that one gang may use in a scheduling pass. The rooms are kept
    sorted, because sorting them for each gang would be slow.

    A gang that would still run at a promised start sees only the capacity that it may
    hold until its own end. A gang that ends before the promised start sees all free
    capacity.
    """

    def __init__(self, floor: Floor, *, copies: bool = False) -> None:
        """Build the view of a pass. `copies`: rooms are copied before they are changed;
        otherwise the rooms of `floor` themselves change."""
        self.by_id = dict(floor.by_id)
        self.rooms = list(floor.rooms)
        self._lent = set(floor.by_id) if copies else set[NodeId]()  # not yet copied
        self.ahead: Availability | None = None
        # where it is less than all that is free
        self._shown: dict[NodeId, NodeRoom] = {}
        self._stop = 0.0
        self.is_shut: set[NodeId] = set()
        self.view = (0, 0)  # gangs of one view see the same

    @property
    def version(self) -> tuple[int, ...]:
        """Return a version that changes when the open nodes, the visible capacity or
        the promises change. Free capacity changes together with the holdings of queues.
        """
        promised = self.ahead.version if self.ahead is not None else -1
        return (len(self.is_shut), promised, *self.view)

    @contextmanager
    def change(self, node: NodeId) -> Iterator[NodeRoom]:
        """Yield the node's room, to change its free capacity. Meanwhile the node is out
        of the sorted order; afterwards it is put back."""
        was_open = self._remove_room(node)
        if node in self._lent:
            self._lent.remove(node)
            self.by_id[node] = self.by_id[node].copy()
        yield self.by_id[node]
        if self.ahead is not None and node in self._shown:
            self._shown[node] = self.ahead.least(node, self.ahead.now, self._stop)
        if was_open:
            self._insert_room(node)

    def take(self, gang: Waiting, seats: Sequence[Seat]) -> None:
        """Assign these seats to the gang from now on."""
        self.take_seats(seats, gang.kin, gang.place.apart_from)

    def take_seats(
        self, seats: Sequence[Seat], kin: str, apart_from: Sequence[str]
    ) -> None:
        """Assign these seats from now on to a gang with this name, which stays apart
        from others."""
        for seat in seats:
            with self.change(seat.node) as room:
                room.take(seat, kin=kin, apart_from=apart_from)

    def see(self, stop: float) -> None:
        """Show only the capacity that a gang may use if the gang ends by the time
        `stop`."""
        if self.ahead is None:
            return
        starts = self.ahead.starts()
        view = (bisect_left(starts, stop), self.ahead.version)
        if view == self.view:
            return
        self.view, self._stop = view, stop
        promised = set(self.ahead.nodes(before=stop))
        for node in [node for node in self._shown if node not in promised]:
            was_open = self._remove_room(node)
            del self._shown[node]
            if was_open:
                self._insert_room(node)
        for node in promised:
            was_open = self._remove_room(node)
            self._shown[node] = self.ahead.least(node, self.ahead.now, stop)
            if was_open:
                self._insert_room(node)

    def with_free(self, gpu_millis: int) -> Sequence[NodeRoom]:
        """Return the rooms in the same order, without those whose GPUs together have
        less than `gpu_millis` thousandths free."""
        if not gpu_millis:
            return self.rooms
        node_rooms: list[NodeRoom] = []
        start, count = 0, len(self.rooms)
        while start < count:  # a stretch of equal suspicion
            suspicion = self.rooms[start].suspicion
            stretch_end = self._place_of(suspicion + 1, 0, start)
            first_fit = self._place_of(suspicion, gpu_millis, start)
            node_rooms += self.rooms[first_fit:stretch_end]
            start = stretch_end
        return node_rooms

    def _place_of(self, suspicion: int, gpu_millis: int, start: int) -> int:
        """Return the first index, from `start` on, of a node with this suspicion and at
        least this free capacity, or with a higher suspicion."""
        lowest = (suspicion, gpu_millis, -1, NodeId(""))
        return bisect_left(self.rooms, lowest, lo=start, key=fullness)

    def shut(self, nodes: Set[NodeId]) -> None:
        """Close these nodes: no further gang is placed on them in this pass."""
        self.is_shut |= nodes
        self.rooms = [room for room in self.rooms if room.id not in nodes]
        if self.ahead is not None:
            self.ahead.shut(nodes)

    def _remove_room(self, node: NodeId) -> bool:
        """Take the node out of the sorted rooms. Return whether it was among them."""
        shown_room = self._shown.get(node, self.by_id[node])
        room_index = bisect_left(self.rooms, shown_room.fullness, key=fullness)
        is_open = room_index < len(self.rooms) and self.rooms[room_index] is shown_room
        if is_open:
            del self.rooms[room_index]
        return is_open

    def _insert_room(self, node: NodeId) -> None:
        insort(self.rooms, self._shown.get(node, self.by_id[node]), key=fullness)
