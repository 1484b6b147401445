"""Network between the head and the nodes: messages may be late, lost, duplicated, or
out of order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from corral.domain.ids import NodeId
from corral.simulate.virtual_loop import VirtualLoop

Deliver = Callable[[], None]


@dataclass(slots=True)
class NetworkLine:
    """One direction of the network between a node and the head. Messages sent while it
    is cut are lost, or the sender's kernel keeps them and delivers them when it heals.
    """

    cut: bool = False
    lost: float = 0.0  # probability, each
    doubled: float = 0.0
    late_seconds: float = 0.0  # longest extra delay
    kept: list[Deliver] = field(default_factory=list)


class SimulatedNetwork:
    def __init__(self, loop: VirtualLoop, chance: Random) -> None:
        self._loop = loop
        self._chance = chance
        self.up: dict[NodeId, NetworkLine] = {}
        self.down: dict[NodeId, NetworkLine] = {}

    def join(self, node: NodeId) -> None:
        self.up[node] = NetworkLine()
        self.down[node] = NetworkLine()

    def send(self, line: NetworkLine, deliver: Deliver) -> None:
        """Deliver the message after a delay, unless it is lost. Each copy has a delay
        of its own, so the order is not kept."""
        if line.cut:
            if self._chance.random() < 0.4:
                line.kept.append(deliver)
            return
        if line.lost and self._chance.random() < line.lost:
            return
        self._schedule_delivery(line, deliver)
        if line.doubled and self._chance.random() < line.doubled:
            self._schedule_delivery(line, deliver)

    def _schedule_delivery(self, line: NetworkLine, deliver: Deliver) -> None:
        seconds = self._chance.uniform(0.0002, 0.002)
        if line.late_seconds:
            seconds += self._chance.uniform(0.0, line.late_seconds)
        self._loop.later(seconds, deliver)

    def reaches(self, node: NodeId) -> bool:
        """Return whether a connection to the node is possible: neither direction may be
        cut."""
        return not (self.up[node].cut or self.down[node].cut)

    def cut(self, node: NodeId, *, up: bool, down: bool) -> None:
        self.up[node].cut |= up
        self.down[node].cut |= down

    def heal(self, node: NodeId) -> None:
        """Repair both directions to the node. Messages that were kept during a cut
        arrive now, perhaps after newer ones."""
        for line in (self.up[node], self.down[node]):
            line.cut, line.lost, line.doubled, line.late_seconds = False, 0.0, 0.0, 0.0
            kept_messages, line.kept = line.kept, []
            for deliver in kept_messages:
                self._loop.later(self._chance.uniform(0.001, 3.0), deliver)
