"""Changes to a job with which it might start sooner."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from corral.control.queue_checks import check_queue
from corral.domain.access_list import may_submit
from corral.domain.errors import Refusal
from corral.domain.ids import UserName
from corral.domain.job import JobSpec
from corral.domain.resources import Resources
from corral.domain.units import MILLIS_PER_GPU, duration_text
from corral.domain.users import Role
from corral.domain.world import World
from corral.schedule import NodeTypes
from corral.schedule.explain import never_fits

MOST: Final = 8


def changes_of(
    world: World, spec: JobSpec, by: UserName
) -> tuple[tuple[str, JobSpec], ...]:
    """Return possible changes of a spec, each as (name of the change, changed spec):
    fewer nodes or GPUs, another type of GPU, another queue, a shorter limit. Return ()
    if the spec itself lists alternatives.

    A change is returned only if the cluster could run the changed job and the queue
    would accept it. `by` is the user.
    """
    if spec.elastic is not None or spec.any_of:
        return ()  # the spec already lists its alternatives
    fleet = NodeTypes(world.nodes.values())
    alternatives = [
        (change, changed_spec)
        for change, changed_spec in _suggest_changes(world, spec, by)
        if _is_taken(world, fleet, changed_spec)
    ]
    return tuple(alternatives[:MOST])


def _suggest_changes(
    world: World, spec: JobSpec, by: UserName
) -> Iterator[tuple[str, JobSpec]]:
    asked_resources = spec.resources
    for nodes in sorted({spec.nodes // 2, 1} - {0, spec.nodes}, reverse=True):
        plural = "s" * (nodes > 1)
        yield (
            f"with {nodes} node{plural} instead of {spec.nodes}",
            replace(spec, nodes=nodes),
        )
    if spec.nodes == 1 and asked_resources.gpus > 1:
        half = asked_resources.gpus // 2
        resources = replace(asked_resources, gpu_millis=half * MILLIS_PER_GPU)
        change = f"with {half} GPU{'s' * (half > 1)} instead of {asked_resources.gpus}"
        yield change, replace(spec, resources=resources)
    for kind in sorted(_other_gpu_types(world, asked_resources)):
        change = f"on {kind} instead of {asked_resources.gpu_type}"
        yield change, replace(spec, resources=replace(asked_resources, gpu_type=kind))
    for queue in world.queues.queues:
        lets = may_submit(world.queues.allowed(queue.name), by, Role.USER)
        if queue.name != spec.queue and lets:
            yield f"in queue {queue.name}", replace(spec, queue=queue.name)
    limit = spec.max_duration_seconds
    if limit is not None:
        shorter = replace(spec, max_duration_seconds=limit / 2)
        yield f"with a max_duration of {duration_text(limit / 2)}", shorter


def _other_gpu_types(world: World, asked: Resources) -> set[str]:
    """Return the GPU types of the cluster other than the requested one."""
    if asked.gpu_type is None:
        return set()
    kinds = {kind for node in world.nodes.values() for kind in node.inventory.gpu_types}
    return kinds - {asked.gpu_type}


def _is_taken(world: World, fleet: NodeTypes, spec: JobSpec) -> bool:
    try:
        check_queue(world, spec)
    except Refusal:
        return False
    return never_fits(spec.place, spec.shapes[0], fleet) is None
