"""Nodes on which the model of a waiting job is there first."""

from corral.domain.content import load_seconds, quickest_nodes
from corral.domain.ids import NodeId
from corral.reconcile.changeset import Draft


class QuickNodes(dict[str, frozenset[NodeId]]):
    """Cache of one pass: for each source of a model the nodes that have it soonest, by
    the seconds to fetch it; an empty set if all nodes are equally quick."""

    def __init__(self, draft: Draft) -> None:
        super().__init__()
        self._facts = draft.facts

    def __missing__(self, source: str) -> frozenset[NodeId]:
        reports = {id: facts.content for id, facts in self._facts.nodes.items()}
        nodes = quickest_nodes(load_seconds(source, reports))
        self[source] = nodes
        return nodes
