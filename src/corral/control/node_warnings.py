"""Warnings about nodes for operators."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from corral.domain.cluster_warning import ClusterWarning, WarningCode
from corral.domain.node import Liveness, Node
from corral.domain.node_fault import Restriction
from corral.domain.user_isolation import names_text, separations

MOST_TOLD: Final = 5  # nodes listed one by one: a storm has hundreds


def node_warnings(nodes: Collection[Node]) -> Iterator[ClusterWarning]:
    """Yield warnings about all nodes: silence, death, weak isolation, faults."""
    for node in nodes:
        yield from _of_one(node)
    yield from _unhealthy(nodes)


def _unhealthy(nodes: Iterable[Node]) -> Iterator[ClusterWarning]:
    """Yield the warnings about nodes with faults, the worst first. If there are many,
    one warning counts the rest. The last one counts the suspect nodes."""
    unhealthy = [
        node for node in nodes if node.restriction != Restriction.OPEN or node.suspect
    ]
    unhealthy.sort(key=lambda node: (not node.suspect, -node.restriction.rank, node.id))
    for node in unhealthy[:MOST_TOLD]:
        if (condition := node.worst) is not None:
            yield ClusterWarning(
                code=WarningCode.NODE_FAULT,
                text=f"node {node.id}: {condition.says}",
                node=node.id,
            )
    if len(unhealthy) > MOST_TOLD:
        remaining_count = len(unhealthy) - MOST_TOLD
        yield ClusterWarning(
            code=WarningCode.NODE_FAULT,
            text=f"{remaining_count} more nodes have faults; run: corral node ls",
        )
    if suspects := sum(node.suspect for node in unhealthy):
        suspects_text = (
            "1 node has a fault but is not cordoned automatically"
            if suspects == 1
            else f"{suspects} nodes have faults but are not cordoned automatically"
        )
        yield ClusterWarning(
            code=WarningCode.SUSPECTS,
            text=f"{suspects_text}; to cordon now: corral node cordon --suspects",
        )


def _of_one(node: Node) -> Iterator[ClusterWarning]:
    """Yield the warnings about one node: that it is silent or dead, or which weaker
    form of isolation it uses."""
    if node.liveness != Liveness.ALIVE:
        is_dead = node.liveness == Liveness.DEAD
        yield ClusterWarning(
            code=WarningCode.NODE_DEAD if is_dead else WarningCode.NODE_SILENT,
            text=f"node {node.id} is {node.liveness}: {node.why}",
            node=node.id,
        )
        return
    if not node.inventory.private_root and not node.inventory.shares_disk:
        yield _isolation_warning(
            node, "has no private root: its ranks can see all files of the machine"
        )
    if node.inventory.containment == "subreaper":
        yield _isolation_warning(
            node,
            "has neither cgroups nor pid namespaces: processes that a rank starts can keep "
            "running if agent and shim are killed together",
        )


def _isolation_warning(node: Node, text: str) -> ClusterWarning:
    return ClusterWarning(
        code=WarningCode.NODE_ISOLATION, text=f"node {node.id} {text}", node=node.id
    )


def account_warnings(nodes: Iterable[Node], users: int) -> Iterator[ClusterWarning]:
    """Yield a warning for the nodes on which users are not isolated from each other, if
    there are several users. `users` is their number."""
    for separation, ids in separations(nodes).items() if users > 1 else ():
        if not separation.is_kept:
            yield ClusterWarning(
                code=WarningCode.USERS_NOT_SEPARATED,
                text=f"on {names_text(ids)}: {separation.text}",
            )
