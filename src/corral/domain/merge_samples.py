"""Merge of the reports of several pilots into one sample of a node. Pure functions."""

from collections.abc import Iterable
from dataclasses import replace

from corral.domain.ids import NodeId
from corral.domain.pilot import key_of, node_of
from corral.domain.telemetry import NodeSample
from corral.domain.world import World


def united(samples: Iterable[NodeSample]) -> NodeSample:
    """Merge samples of a node into one sample.

    Each GPU keeps its last values. Values of the machine come from the newest sample
    that has them. Raises: ValueError if there is no sample.
    """
    in_order = sorted(samples, key=lambda one: one.at)
    newest_sample = max(
        in_order, key=lambda one: (one.memory_total_bytes is not None, one.at)
    )
    gpus = {gpu.index: gpu for node_sample in in_order for gpu in node_sample.gpus}
    return replace(newest_sample, gpus=tuple(gpus[index] for index in sorted(gpus)))


def granted(world: World, part: NodeId, sample: NodeSample) -> NodeSample:
    """Return a pilot's sample with only the GPUs that its attempt holds now. Other jobs
    may already hold the rest. `part` is the pilot."""
    key = key_of(part)
    allocation = (
        world.allocations.get((*key, node_of(part))) if key is not None else None
    )
    own_gpus = allocation.seat.gpus if allocation is not None else ()
    if all(gpu.index in own_gpus for gpu in sample.gpus):
        return sample
    return replace(
        sample, gpus=tuple(gpu for gpu in sample.gpus if gpu.index in own_gpus)
    )
