"""Requests of users that close or reopen a node."""

from dataclasses import replace
from typing import Literal

from corral.domain.event_kind import EventKind
from corral.domain.node import Node
from corral.domain.node_fault import BY_HEALTH, Restriction
from corral.domain.requests import StoredRequest
from corral.health.node_diagnosis import excused, mended
from corral.reconcile.changeset import Draft
from corral.reconcile.failure_counts import forget_lemon


def restrict_by_person(
    node: Node, to: Literal["cordon", "drain", "uncordon", "clear"], now: float
) -> Node:
    """Return the node after a user's request to close it, reopen it, or clear its
    faults. A node that a user has closed is opened only by a user."""
    match to:
        case "cordon" | "drain":
            return replace(
                node,
                cordoned=True,
                draining=to == "drain",
                cordoned_by="",
                suspect=False,
            )
        case "uncordon":
            return _reopen_node(replace(node, conditions=excused(node.conditions)))
        case "clear":
            well = replace(node, conditions=mended(node.conditions, now), suspect=False)
            well = forget_lemon(node, well)
            return _reopen_node(well) if node.is_cordoned_by_health else well


def cordon_suspects(draft: Draft, request: StoredRequest) -> None:
    """Cordon or drain each suspected node, as its health requires. These cordons do not
    count for the breaker, and end automatically when the node is healthy again."""
    draft.is_urgent = True
    for node in [
        all_node for all_node in draft.all_nodes().values() if all_node.suspect
    ]:
        draining = node.restriction == Restriction.DRAIN
        draft.nodes[node.id] = replace(
            node, cordoned=True, draining=draining, cordoned_by=BY_HEALTH, suspect=False
        )
        condition = node.worst
        event_kind, reason = (
            EventKind.DRAIN if draining else EventKind.CORDON,
            condition.says if condition is not None else "",
        )
        text = (
            f"node {node.id}: {event_kind}, requested by {request.by} for all suspect "
            f"nodes: {reason}"
        )
        draft.tell(event_kind, text, node=node.id)


def _reopen_node(node: Node) -> Node:
    return replace(node, cordoned=False, draining=False, cordoned_by="", suspect=False)
