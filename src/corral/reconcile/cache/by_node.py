"""Allocations grouped by node."""

from collections import defaultdict

from corral.domain.attempt import Allocation
from corral.domain.ids import NodeId
from corral.reconcile.changeset import Draft


class AllocationsByNode:
    """The allocations of each node; those of one node can be taken only once. They are
    grouped by node at the first call and not before, because grouping visits every
    seat, which is too slow for each pass over a healthy cluster."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._by_node: dict[NodeId, list[Allocation]] | None = None

    def take(self, node: NodeId) -> list[Allocation]:
        if self._by_node is None:
            self._by_node = defaultdict(list)
            for allocation in self._draft.held():
                self._by_node[allocation.seat.node].append(allocation)
        return self._by_node.pop(node, [])
