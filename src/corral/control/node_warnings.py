"""Warnings about nodes for operators, as sentences."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from corral.domain.node import Liveness, Node
from corral.domain.node_fault import Bar
from corral.domain.user_isolation import names_text, separations

MOST_TOLD: Final = 5  # nodes listed one by one: a storm has hundreds


def node_warnings(nodes: Collection[Node]) -> Iterator[str]:
    """Yield warnings about all nodes: silence, death, weak isolation, faults."""
    for node in nodes:
        yield from _of_one(node)
    yield from _ailing(nodes)


def _ailing(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the faults of nodes, worst first; many of them in one sentence."""
    ailing = [node for node in nodes if node.bar != Bar.OPEN or node.suspect]
    ailing.sort(key=lambda node: (not node.suspect, -node.bar.rank, node.id))
    for node in ailing[:MOST_TOLD]:
        if (ails := node.worst) is not None:
            yield f"node {node.id}: {ails.says}"
    if len(ailing) > MOST_TOLD:
        yield f"{len(ailing) - MOST_TOLD} more nodes ail: corral node ls"
    if suspects := sum(node.suspect for node in ailing):
        who = "1 suspect" if suspects == 1 else f"{suspects} suspects"
        yield f"{who}: to cordon what health would is left to you: corral node cordon --suspects"


def _of_one(node: Node) -> Iterator[str]:
    """Silence, death, and every weaker form of isolation that the node had to take."""
    if node.liveness != Liveness.ALIVE:
        yield f"node {node.id} is {node.liveness}: {node.why}"
        return
    if not node.inventory.private_root and not node.inventory.shares_disk:
        yield f"node {node.id} has no private root: its ranks see the host's whole disk"
    if node.inventory.containment == "subreaper":
        yield (
            f"node {node.id} has neither cgroups nor pid namespaces: what a rank forks can "
            "outlive it if agent and shim are killed together"
        )


def account_warnings(nodes: Iterable[Node], users: int) -> Iterator[str]:
    """The nodes on which nothing keeps users apart, where there are several users."""
    for separation, ids in separations(nodes).items() if users > 1 else ():
        if not separation.is_kept:
            yield f"{names_text(ids)}: {separation.text}"
