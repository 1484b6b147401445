"""Requests to Ray's autoscaler, and the idle nodes that it may remove. Pure."""

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
    """Return the bundles that the Ray cluster must hold at the same time: all GPUs of
    each busy node, and every waiting gang. Busy nodes are included, since Ray adds
    nothing for what is already in use. `types`: Ray's resource names of the GPU types
    that its autoscaler could add."""
    bundle_list = [{"GPU": float(node.gpus)} for node in busy if node.gpus]
    for shape in waiting:
        bundle_list += [bundle(shape, types or {})] * min(shape.nodes, MOST_BUNDLES)
    return bundle_list[:MOST_BUNDLES]


def bundle(shape: Shape, types: Mapping[str, str]) -> dict[str, float]:
    """Return the resources of one node's part of a gang, under Ray's names. A part that
    asks for nothing still needs a node with a CPU. GPUs are rounded up to whole ones,
    as Corral reserves them."""
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
    """Idle nodes from which Corral has withdrawn, so that Ray too sees them as idle.
    Ray's autoscaler removes them after its own timeout. If a gang waits before that,
    Corral uses them again."""

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
        """Return the nodes that have been idle for long enough and are left to the
        autoscaler from now on. `waits`: a job waits for nodes; the result is then
        empty, and all sleeping nodes are used again. The node of Ray's own head never
        sleeps, since no autoscaler removes it."""
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
        """Return whether the node is left to the autoscaler, or was when it ended."""
        return self._asleep.get(row.id) == row.ray_node
