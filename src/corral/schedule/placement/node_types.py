"""All known nodes grouped by their capacity, so that one lookup separates "no room now"
from "no room ever"."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Final, TypeVar

from corral.domain.ids import NodeId
from corral.domain.node import Node
from corral.domain.placement_constraints import Mode, PlaceRule
from corral.domain.resources import Inventory, Resources, Shape
from corral.domain.units import MILLIS_PER_CPU, MILLIS_PER_GPU
from corral.domain.usage import BYTES_PER_GIB
from corral.schedule.capacity.node_room import NodeRoom
from corral.schedule.placement.topology import largest_domain
from corral.schedule.quota.fair_share import ResourceAmounts

# answers of one kind, which a head keeps for as long as its nodes last
MOST_KEPT: Final = 300

K = TypeVar("K")
V = TypeVar("V")


class NodeTypes:
    """All known nodes in groups of equal capacity. Each group is examined only once,
    because a thousand nodes usually belong to a few groups."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = list(nodes)
        self._told: dict[tuple[Resources, PlaceRule], list[Node]] = {}
        known_nodes: dict[tuple[object, ...], Node] = {}
        kinds: dict[NodeId, tuple[object, ...]] = {}
        count: Counter[tuple[object, ...]] = Counter()
        for node in self._nodes:
            offer = node.inventory
            kind = (
                offer.types,
                offer.cuts,
                offer.cpu_millis,
                offer.memory_bytes,
                offer.gpu_shares,
            )
            known_nodes.setdefault(kind, node)
            kinds[node.id] = kind
            count[kind] += 1
        empty_rooms = {kind: NodeRoom(node) for kind, node in known_nodes.items()}
        self._kinds = [(room, count[kind]) for kind, room in empty_rooms.items()]
        self._empty = {node: empty_rooms[kind] for node, kind in kinds.items()}
        self._holds: dict[tuple[NodeId, Resources], bool] = {}
        self._holding: dict[Resources, int] = {}
        self._together: dict[tuple[Resources, PlaceRule], int] = {}
        self.size = count.total()

    def could_seat(self, node: NodeId, asked: Resources) -> bool:
        """Return whether the node could provide these resources if it were idle."""
        room = self._empty[node]
        return _cached_answer(
            self._holds, (room.id, asked), lambda: room.seat(asked) is not None
        )

    def holding(self, asked: Resources) -> int:
        """Return how many nodes could provide these resources if nothing ran on
        them."""

        def find() -> int:
            return sum(
                count for room, count in self._kinds if room.seat(asked) is not None
            )

        return _cached_answer(self._holding, asked, find)

    def nearest(self, shape: Shape) -> Shape | None:
        """Return the largest shape, at most the requested one, that the nodes could
        provide if idle. Return None if they have no GPU of the requested type."""
        like = [
            _at_most(room.node.inventory, shape.resources) for room, _ in self._kinds
        ]
        asked_type = shape.resources.gpu_type
        able = [
            resources
            for resources in like
            if resources is not None and self.holding(resources)
        ]
        if not able:
            return None
        largest_request = max(
            able,
            key=lambda one: (
                one.gpu_type == asked_type,
                one.gpu_millis,
                one.cpu_millis,
                one.memory_bytes,
            ),
        )
        return Shape(
            nodes=min(shape.nodes, self.holding(largest_request)),
            resources=largest_request,
        )

    def could_hold(self, shape: Shape, rule: PlaceRule) -> int:
        """Return how many nodes could each hold one seat of the gang at the same time
        if nothing else ran. If the gang must lie in one domain, return the number in
        the domain with the most such nodes."""
        if rule.topology.mode != Mode.REQUIRE or shape.nodes == 1:
            return (
                self.holding(shape.resources)
                if not rule.constraints
                else len(self._capable_nodes(shape.resources, rule))
            )

        def find() -> int:
            able = {
                node.id: node.labels
                for node in self._capable_nodes(shape.resources, rule)
            }
            return largest_domain(able, rule.topology.within)

        return _cached_answer(self._together, (shape.resources, rule), find)

    def _capable_nodes(self, asked: Resources, rule: PlaceRule) -> list[Node]:
        """Return the nodes that the placement rule admits and that could provide these
        resources when idle. The result is cached for each request."""

        def find() -> list[Node]:
            admitted = (node for node in self._nodes if rule.admits(node.labels))
            return [node for node in admitted if self.could_seat(node.id, asked)]

        return _cached_answer(self._told, (asked, rule), find)

    def values_of(self, label: str) -> list[str]:
        """Return all values that the nodes have for this label, sorted."""
        return sorted(
            {node.labels[label] for node in self._nodes if label in node.labels}
        )

    @property
    def label_names(self) -> list[str]:
        return sorted({label for node in self._nodes for label in node.labels})

    @cached_property
    def types(self) -> dict[NodeId, tuple[str, ...]]:
        """Return the types of each node's GPUs by index, including nodes that take no
        work now."""
        return {node.id: node.inventory.types for node in self._nodes}

    @property
    def capacity(self) -> ResourceAmounts:
        """Return the total GPUs, CPU and memory of all nodes."""
        total_amounts = ResourceAmounts()
        for room, count in self._kinds:
            offer = room.node.inventory
            node_amounts = ResourceAmounts(
                len(offer.gpus),
                offer.cpu_millis / MILLIS_PER_CPU,
                offer.memory_bytes / BYTES_PER_GIB,
            )
            total_amounts = total_amounts.plus(node_amounts, count)
        return total_amounts

    @property
    def most_gpus(self) -> int:
        """Return the number of GPUs of the largest node."""
        return max((len(room.types) for room, _ in self._kinds), default=0)

    @property
    def gives_shares(self) -> bool:
        return any(room.shares or any(room.free_slices) for room, _ in self._kinds)

    @property
    def most_parts(self) -> int:
        """Return the largest number of slices into which a GPU is divided, if every GPU
        is divided; 0 if some GPU is whole or there are none."""
        cuts = [
            slice_count
            for room, _ in self._kinds
            for slice_count in room.node.inventory.cuts
        ]
        return max(cuts, default=0) if all(cuts) else 0

    @property
    def gpu_types(self) -> list[str]:
        return sorted({kind for room, _ in self._kinds for kind in room.kinds})


def _at_most(offer: Inventory, asked: Resources) -> Resources | None:
    """Return the resources, at most the requested ones, that an empty node of this kind
    has. If the node lacks the requested GPU type, its most frequent type is used.
    Return None if GPUs are requested and the node has none."""
    kind = asked.gpu_type
    if kind is not None and kind not in offer.types:
        kind = max(sorted(offer.gpu_types), key=offer.types.count, default=None)
    gpus = len(offer.types) if kind is None else offer.types.count(kind)
    if asked.gpu_millis and not gpus:
        return None
    return Resources(
        gpu_millis=min(asked.gpu_millis, gpus * MILLIS_PER_GPU),
        gpu_type=kind,
        cpu_millis=min(asked.cpu_millis, offer.cpu_millis),
        memory_bytes=min(asked.memory_bytes, offer.memory_bytes),
    )


def _cached_answer(answers: dict[K, V], key: K, find: Callable[[], V]) -> V:
    """Return the answer cached under `key`; else compute it with `find` and cache it."""
    if key not in answers:
        if len(answers) >= MOST_KEPT:
            answers.clear()
        answers[key] = find()
    return answers[key]
