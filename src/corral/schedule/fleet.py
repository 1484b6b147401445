"""All known nodes by what they offer: "not now" is told from "never" without a look at each."""

from collections import Counter
from collections.abc import Iterable

from corral.domain.node import Node
from corral.domain.resources import Resources
from corral.domain.units import MILLIS_PER_CPU
from corral.domain.use import BYTES_PER_GIB
from corral.schedule.room import NodeRoom
from corral.schedule.share import Amounts


class Fleet:
    """Nodes that offer the same are counted together: a thousand nodes are a handful of kinds."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        known: dict[tuple[object, ...], Node] = {}
        count: Counter[tuple[object, ...]] = Counter()
        for node in nodes:
            offer = node.inventory
            types = tuple(gpu.type for gpu in offer.gpus)
            kind = (types, offer.cpu_millis, offer.memory_bytes, offer.gpu_shares)
            known.setdefault(kind, node)
            count[kind] += 1
        self._kinds = [(NodeRoom(node), count[kind]) for kind, node in known.items()]
        self.size = count.total()

    def holding(self, asked: Resources) -> int:
        """How many nodes could give these resources if nothing else ran."""
        return sum(count for room, count in self._kinds if room.seat(asked) is not None)

    @property
    def capacity(self) -> Amounts:
        """What all nodes together offer."""
        found = Amounts()
        for room, count in self._kinds:
            offer = room.node.inventory
            one = Amounts(
                len(offer.gpus),
                offer.cpu_millis / MILLIS_PER_CPU,
                offer.memory_bytes / BYTES_PER_GIB,
            )
            found = found.plus(one, count)
        return found

    @property
    def most_gpus(self) -> int:
        """GPUs of the largest node."""
        return max((len(room.types) for room, _ in self._kinds), default=0)

    @property
    def gives_shares(self) -> bool:
        return any(room.shares for room, _ in self._kinds)

    @property
    def gpu_types(self) -> list[str]:
        return sorted({kind for room, _ in self._kinds for kind in room.kinds})
