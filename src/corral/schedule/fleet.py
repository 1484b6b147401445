"""All known nodes by what they offer: "not now" is told from "never" without a look at each."""

from collections import Counter
from collections.abc import Iterable

from corral.domain.ids import NodeId
from corral.domain.node import Node
from corral.domain.place import Mode, PlaceRule
from corral.domain.resources import Resources, Shape
from corral.domain.units import MILLIS_PER_CPU
from corral.domain.use import BYTES_PER_GIB
from corral.schedule.near import largest_domain
from corral.schedule.room import NodeRoom
from corral.schedule.share import Amounts


class Fleet:
    """Nodes that offer the same are counted together: a thousand nodes are a handful of kinds."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = list(nodes)
        self._told: dict[tuple[Resources, PlaceRule], list[Node]] = {}
        known: dict[tuple[object, ...], Node] = {}
        count: Counter[tuple[object, ...]] = Counter()
        for node in self._nodes:
            offer = node.inventory
            kind = (offer.types, offer.cuts, offer.cpu_millis, offer.memory_bytes, offer.gpu_shares)
            known.setdefault(kind, node)
            count[kind] += 1
        self._kinds = [(NodeRoom(node), count[kind]) for kind, node in known.items()]
        self.size = count.total()

    def holding(self, asked: Resources) -> int:
        """How many nodes could give these resources if nothing else ran."""
        return sum(count for room, count in self._kinds if room.seat(asked) is not None)

    def could_hold(self, shape: Shape, rule: PlaceRule) -> int:
        """How many nodes could give a part of the gang at once if nothing else ran; where it must
        lie in one domain, that of the domain with the most of them."""
        if rule.topology.mode != Mode.REQUIRE or shape.nodes == 1:
            return (
                self.holding(shape.resources)
                if not rule.constraints
                else len(self._able(shape.resources, rule))
            )
        able = {node.id: node.labels for node in self._able(shape.resources, rule)}
        return largest_domain(able, rule.topology.within)

    def _able(self, asked: Resources, rule: PlaceRule) -> list[Node]:
        """A look at every node, once for each kind of ask."""
        if (asked, rule) not in self._told:
            admitted = (node for node in self._nodes if rule.admits(node.labels))
            able = [node for node in admitted if NodeRoom(node).seat(asked) is not None]
            self._told[asked, rule] = able
        return self._told[asked, rule]

    def values_of(self, label: str) -> list[str]:
        """What nodes have under this label."""
        return sorted({node.labels[label] for node in self._nodes if label in node.labels})

    @property
    def label_names(self) -> list[str]:
        return sorted({label for node in self._nodes for label in node.labels})

    @property
    def types(self) -> dict[NodeId, tuple[str, ...]]:
        """Of each node's GPUs by index, also of one that takes no work now."""
        return {node.id: node.inventory.types for node in self._nodes}

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
        return any(room.shares or any(room.free_slices) for room, _ in self._kinds)

    @property
    def gpu_types(self) -> list[str]:
        return sorted({kind for room, _ in self._kinds for kind in room.kinds})
