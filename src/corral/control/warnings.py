"""What an operator should know of a node, as sentences."""

from collections.abc import Iterator

from corral.domain.node import Liveness, Node


def node_warnings(node: Node) -> Iterator[str]:
    """Silence, death, and every weaker form of isolation that the node had to take."""
    if node.liveness != Liveness.ALIVE:
        yield f"node {node.id} is {node.liveness}: {node.why}"
        return
    if not node.inventory.private_root:
        yield f"node {node.id} has no private root: its ranks see the host's whole disk"
    if node.inventory.containment == "subreaper":
        yield (
            f"node {node.id} has neither cgroups nor pid namespaces: what a rank forks can "
            "outlive it if agent and shim are killed together"
        )
