"""The newest sensor sample of every node. Samples are not recorded: after a restart of
the head, the nodes send them again."""

from collections.abc import Callable
from typing import Final

from corral.domain.ids import NodeId
from corral.domain.merge_samples import granted, united
from corral.domain.pilot import is_part, node_of
from corral.domain.telemetry import NodeSample
from corral.domain.world import World

Listener = Callable[[NodeId, NodeSample, float], None]
PART_SECONDS: Final = 30.0  # validity of a part's last sample: three intervals


class Sensed:
    """The newest sensor sample of each node. Listeners are called with (node, sample,
    arrival time) for each new sample; the arrival time is the head's wall clock.

    The sample of a node from a batch system is built from the latest values of its
    pilots (0062). It leaves out a GPU if `world` shows that the pilot's attempt has
    returned it. A node that has left has no sample. Outdated values are never shown.
    """

    def __init__(self, world: Callable[[], World] | None = None) -> None:
        self.newest: dict[NodeId, NodeSample] = {}
        self._world = world
        self._listeners: list[Listener] = []
        self._parts: dict[NodeId, dict[NodeId, tuple[float, NodeSample]]] = {}

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def take(self, teller: NodeId, sample: NodeSample, at: float) -> None:
        """Store a sample and pass the node's newest sample to the listeners. `teller`
        is the id of the sender: a node, or a part of a node."""
        node = node_of(teller)
        if is_part(teller):
            self._parts.setdefault(node, {})[teller] = (at, sample)
            self._update_newest(node, at)
        else:
            self.newest[node] = sample
        for listener in self._listeners:
            listener(node, self.newest[node], at)

    def parts(self, node: NodeId) -> int:
        """Return how many pilots have sent samples for this node."""
        return len(self._parts.get(node, ()))

    def left(self, part: NodeId, at: float) -> None:
        """Drop the samples of a part (a pilot of a node from a batch system) that is
        disconnected, at least for now."""
        node = node_of(part)
        if self._parts.get(node, {}).pop(part, None) is not None:
            self._update_newest(node, at)

    def age(self, at: float) -> None:
        """Drop the samples of pilots that are outdated at the time `at` from the nodes'
        samples."""
        for node, samples_by_part in list(self._parts.items()):
            if any(
                _is_old(received_at, at) for received_at, _ in samples_by_part.values()
            ):
                self._update_newest(node, at)

    def drop(self, node: NodeId) -> None:
        """Drop the samples of a node that has left the cluster."""
        self.newest.pop(node, None)
        self._parts.pop(node, None)

    def _update_newest(self, node: NodeId, at: float) -> None:
        samples_by_part = self._parts[node]
        for expired_part in [
            part_id
            for part_id, (received_at, _) in samples_by_part.items()
            if _is_old(received_at, at)
        ]:
            del samples_by_part[expired_part]
        if not samples_by_part:
            self.drop(node)
            return
        self.newest[node] = united(
            self._own(live_part, sample)
            for live_part, (_, sample) in samples_by_part.items()
        )

    def _own(self, part: NodeId, sample: NodeSample) -> NodeSample:
        return sample if self._world is None else granted(self._world(), part, sample)


def _is_old(came: float, at: float) -> bool:
    return abs(at - came) > PART_SECONDS  # also when the clock was set back
