"""Allocations grouped by node."""

from collections import defaultdict

from corral.domain.attempt import Allocation
from corral.domain.ids import NodeId
from corral.reconcile.changeset import Draft


class AllocationsByNode:
    """Allocations of each node; a node's allocations can be taken once. They are
    grouped by node only at the first call, because grouping visits every seat, which a
    pass over a healthy cluster must avoid."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._by_node: dict[NodeId, list[Allocation]] | None = None

    def take(self, node: NodeId) -> list[Allocation]:
        if self._by_node is None:
            self._by_node = defaultdict(list)
            for allocation in self._draft.held():
                self._by_node[allocation.seat.node].append(allocation)
        return self._by_node.pop(node, [])
