"""What the sensors of all nodes said last. Not recorded: after a restart nodes say it anew."""

from collections.abc import Callable

from corral.domain.ids import NodeId
from corral.domain.telemetry import NodeSample

Listener = Callable[[NodeId, NodeSample, float], None]


class Sensed:
    """The newest sample of each node, and whoever wants to be told of each: (node, sample, when it
    came by the head's wall clock)."""

    def __init__(self) -> None:
        self.newest: dict[NodeId, NodeSample] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def take(self, node: NodeId, sample: NodeSample, at: float) -> None:
        self.newest[node] = sample
        for listener in self._listeners:
            listener(node, sample, at)

    def drop(self, node: NodeId) -> None:
        """The node is one no more."""
        self.newest.pop(node, None)
