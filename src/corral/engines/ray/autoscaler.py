"""Requests to Ray's autoscaler, and the idle nodes that are left to it. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from corral.domain.ids import NodeId
from corral.domain.resources import Shape
from corral.domain.units import MILLIS_PER_CPU, MILLIS_PER_GPU
from corral.engines.ray.nodes import RayNode

# of a resource that says of which type a node's GPUs are: it has 1
OF_TYPE: Final = 0.001
MOST_BUNDLES: Final = 1_000  # Ray plans for all of them at each of its looks


def bundles(
    busy: Iterable[RayNode],
    waiting: Sequence[Shape],
    types: Mapping[str, str] | None = None,
) -> list[dict[str, float]]:
    """Return what the nodes of a cluster must hold at once: busy nodes, whole as they
    are, and every waiting gang, since Ray does not count what is already in use.
    `types`: Ray's names for the types of GPUs that its autoscaler could add."""
    bundle_list = [{"GPU": float(node.gpus)} for node in busy if node.gpus]
    for shape in waiting:
        bundle_list += [bundle(shape, types or {})] * min(shape.nodes, MOST_BUNDLES)
    return bundle_list[:MOST_BUNDLES]


def bundle(shape: Shape, types: Mapping[str, str]) -> dict[str, float]:
    """One node's part of a gang, in Ray's words. A part that asks for nothing still
    needs a node with a CPU. GPUs are whole: Corral holds them so."""
    resources = shape.resources
    bundle_resources = {
        "GPU": float(-(-resources.gpu_millis // MILLIS_PER_GPU)),
        "CPU": resources.cpu_millis / MILLIS_PER_CPU,
    }
    if resources.gpu_type is not None and resources.gpu_type in types:
        bundle_resources[types[resources.gpu_type]] = OF_TYPE
    return {name: amount for name, amount in bundle_resources.items() if amount} or {
        "CPU": 1.0
    }


@dataclass(slots=True)
class Sleepers:
    """Nodes on which Corral keeps nothing, so that Ray sees them idle. Its autoscaler
    takes them back after a time of its own; a gang that waits before that wakes
    them."""

    idle_seconds: float
    _asleep: dict[NodeId, str] = field(default_factory=dict)  # as which node of Ray
    _idle_since: dict[NodeId, float] = field(default_factory=dict)

    def tired(
        self,
        nodes: Mapping[NodeId, RayNode],
        *,
        busy: Collection[NodeId],
        waits: bool,
        now: float,
    ) -> list[NodeId]:
        """Return the nodes that go to sleep now. While a job waits none does, and all
        are woken. The node of Ray's own head never sleeps: no autoscaler removes it."""
        if waits:
            self._asleep.clear()
            self._idle_since.clear()
            return []
        self._asleep = {
            id: ray_node for id, ray_node in self._asleep.items() if id not in busy
        }
        idle = [
            id
            for id, row in nodes.items()
            if row.alive and not row.is_head and id not in busy
        ]
        self._idle_since = {id: self._idle_since.get(id, now) for id in idle}
        sleep_candidates = [
            id
            for id in idle
            if not self.sleeps(nodes[id])
            and now - self._idle_since[id] >= self.idle_seconds
        ]
        self._asleep |= {id: nodes[id].ray_node for id in sleep_candidates}
        return sleep_candidates

    def sleeps(self, row: RayNode) -> bool:
        """Whether it does, or did when it ended."""
        return self._asleep.get(row.id) == row.ray_node
