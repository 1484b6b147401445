"""Summary of all nodes' resources, kept from pass to pass and renewed when a node's row
changes."""

from dataclasses import dataclass

from corral.domain.ids import NodeId
from corral.domain.node import Liveness, Node
from corral.reconcile.changeset import Draft
from corral.schedule import NodeTypes
from corral.schedule.quota.fair_share import ResourceAmounts


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOffers:
    """Summary of the cluster's resources. `fleet` holds the types of all known nodes.
    `capacity` and `kinds` are the resources and GPU types of all nodes that are not
    dead."""

    fleet: NodeTypes
    capacity: ResourceAmounts
    kinds: tuple[str, ...]


class Offers:
    """Keeps `NodeOffers` up to date. A node whose row is still the same object is not
    read again."""

    def __init__(self) -> None:
        self._nodes: dict[NodeId, Node] = {}
        self._offered: NodeOffers | None = None

    def of(self, draft: Draft) -> NodeOffers:
        nodes, nodes_by_node = draft.all_nodes(), self._nodes
        changed_nodes = [
            node for id, node in nodes.items() if nodes_by_node.get(id) is not node
        ]
        is_same = len(nodes) == len(nodes_by_node) and all(
            _has_same_offer(nodes_by_node.get(n.id), n) for n in changed_nodes
        )
        nodes_by_node.update((node.id, node) for node in changed_nodes)
        if self._offered is None or not is_same:
            self._nodes = dict(nodes)
            living = [node for node in nodes.values() if node.liveness != Liveness.DEAD]
            self._offered = NodeOffers(
                fleet=NodeTypes(nodes.values()),
                capacity=NodeTypes(living).capacity,
                kinds=tuple(
                    sorted({kind for n in living for kind in n.inventory.gpu_types})
                ),
            )
        return self._offered


def _has_same_offer(before: Node | None, node: Node) -> bool:
    """Return whether the node offers the same resources as `before`. Other changes of
    its row, and its use by other systems, do not matter."""
    return (
        before is not None
        and (
            before.inventory is node.inventory
            or before.inventory.capacity == node.inventory.capacity
        )
        and before.set_labels == node.set_labels
        and (before.liveness == Liveness.DEAD) == (node.liveness == Liveness.DEAD)
    )
