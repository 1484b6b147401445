"""The rooms of one pass in the order of best fit, as the gang that is tried next may use them."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager

from corral.domain.ids import NodeId
from corral.schedule.ahead import Ahead
from corral.schedule.room import NodeRoom


def _fullness(room: NodeRoom) -> tuple[int, int, int, NodeId]:
    return room.fullness


class Opened:
    """`rooms` are kept in order: sorting them anew for each gang would cost most.

    Who runs beyond a promised start sees of a node only what it may hold until it ends; who has
    gone by then sees all that is free.
    """

    def __init__(self, by_id: Mapping[NodeId, NodeRoom]) -> None:
        self.by_id = by_id
        self.rooms = sorted(by_id.values(), key=_fullness)
        self.ahead: Ahead | None = None
        self._shown: dict[NodeId, NodeRoom] = {}  # where it is less than all that is free
        self._stop = 0.0
        self.is_shut: set[NodeId] = set()
        self.view = (0, 0)  # gangs of one view see the same

    @contextmanager
    def change(self, node: NodeId) -> Iterator[NodeRoom]:
        """The node is taken out of the order while what is free on it changes."""
        room = self.by_id[node]
        was_open = self._lift(node)
        yield room
        if self.ahead is not None and node in self._shown:
            self._shown[node] = self.ahead.least(node, self.ahead.now, self._stop)
        if was_open:
            self._lay(node)

    def see(self, stop: float) -> None:
        """From now on it is about a gang that has gone by then."""
        if self.ahead is None:
            return
        starts = self.ahead.starts()
        view = (bisect_left(starts, stop), self.ahead.version)
        if view == self.view:
            return
        self.view, self._stop = view, stop
        promised = set(self.ahead.nodes(before=stop))
        for node in [node for node in self._shown if node not in promised]:
            was_open = self._lift(node)
            del self._shown[node]
            if was_open:
                self._lay(node)
        for node in promised:
            was_open = self._lift(node)
            self._shown[node] = self.ahead.least(node, self.ahead.now, stop)
            if was_open:
                self._lay(node)

    def shut(self, nodes: Set[NodeId]) -> None:
        """Nobody may use them any more in this pass."""
        self.is_shut |= nodes
        self.rooms = [room for room in self.rooms if room.id not in nodes]
        if self.ahead is not None:
            self.ahead.shut(nodes)

    def _lift(self, node: NodeId) -> bool:
        """Whether the node was open."""
        shown = self._shown.get(node, self.by_id[node])
        place = bisect_left(self.rooms, shown.fullness, key=_fullness)
        is_open = place < len(self.rooms) and self.rooms[place] is shown
        if is_open:
            del self.rooms[place]
        return is_open

    def _lay(self, node: NodeId) -> None:
        insort(self.rooms, self._shown.get(node, self.by_id[node]), key=_fullness)
