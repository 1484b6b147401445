"""Checks of automatic health actions, compared with their limit and with the real
faults."""

from typing import Final

from corral.domain.ids import NodeId
from corral.domain.node import Node
from corral.domain.world import Changes
from corral.simulate.recorded_state import Books

BREAKER_SECONDS: Final = 300.0
BREAKER_SHARE: Final = 0.1
BY_HEALTH: Final = "health"


class NodeRestrictionsOracle:
    """Checks of I16: within five minutes, health automatically cordons at most a tenth
    of all nodes (at least one node is allowed), and only nodes that have reported a
    fault. Times are those of the head's wall clock, as recorded in its rows."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._were: dict[NodeId, Node | None] = {}
        self._cordoned_at: list[float] = []

    def before(self, changes: Changes) -> None:
        """Record the state of the nodes before the commit."""
        self._were = {node.id: self._books.nodes.get(node.id) for node in changes.nodes}

    def check(self, changes: Changes, wall: float) -> None:
        books = self._books
        for node in changes.nodes:
            if not _by_health(node) or _by_health(self._were[node.id]):
                continue
            self._cordoned_at.append(wall)
            if not books.machines[node.id].disk.signals:
                books.breach("I16", f"{node.id} is cordoned, but has reported no fault")
        lately = sum(
            wall - cordoned_at < BREAKER_SECONDS for cordoned_at in self._cordoned_at
        )
        cordon_limit = max(1, int(len(books.nodes) * BREAKER_SHARE))
        if (
            any(cordoned_at == wall for cordoned_at in self._cordoned_at)
            and lately > cordon_limit
        ):
            books.breach(
                "I16",
                f"{lately} of {len(books.nodes)} nodes were cordoned automatically: too many",
            )


def _by_health(node: Node | None) -> bool:
    return node is not None and node.cordoned and node.cordoned_by == BY_HEALTH
