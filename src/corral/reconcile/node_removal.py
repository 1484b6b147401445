"""Nodes that are removed for good, by a user's request or by their engine."""

from dataclasses import replace

from corral.domain.event_kind import EventKind
from corral.domain.ids import NodeId
from corral.domain.node import Liveness, Node
from corral.domain.requests import StoredRequest
from corral.reconcile.changeset import Draft


def take_for_dead(draft: Draft, request: StoredRequest, node: Node) -> None:
    """Treat a node as dead on request, from now on and until it reports again; the
    request is the proof."""
    if node.said_dead:
        return
    dead_node = replace(node, said_dead=request.by)
    draft.nodes[node.id] = dead_node
    draft.facts = replace(
        draft.facts, proofs={**draft.facts.proofs, node.id: dead_node.word}
    )


def remove(draft: Draft, request: StoredRequest, node: NodeId) -> None:
    """Remove a node on request.

    If the node still holds jobs, the request is refused, because their seats could not
    be returned.
    """
    if any(allocation.seat.node == node for allocation in draft.held()):
        draft.tell(
            EventKind.NOT_REMOVED,
            f"node {node} was not removed: jobs still run on it",
            node=node,
        )
        return
    _let_go(draft, node)
    draft.tell(
        EventKind.NODE_REMOVED,
        f"node {node} was removed, requested by {request.by}",
        node=node,
    )


def see_gone(draft: Draft) -> None:
    """Remove nodes that the engine no longer has, once they count as dead and so hold
    nothing. Their settings, such as a cordon, are removed too: a later node of that
    name is a different node."""
    for id in sorted(draft.facts.gone):
        node = draft.node(id)
        if node is not None and node.liveness == Liveness.DEAD:
            _let_go(draft, id)
            draft.tell(
                EventKind.NODE_GONE,
                f"node {id} was removed: its engine no longer has it",
                node=id,
            )


def _let_go(draft: Draft, node: NodeId) -> None:
    draft.remove(node)
    other_nodes = {id: heard for id, heard in draft.facts.nodes.items() if id != node}
    draft.facts = replace(draft.facts, nodes=other_nodes)
