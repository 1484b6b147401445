"""Node types that Ray's autoscaler could add, read from its configuration file. Pure.

Source:
https://docs.ray.io/en/latest/cluster/vms/references/ray-cluster-configuration.html
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from corral.domain.node import NodeKind
from corral.domain.resources import Gpu, Inventory
from corral.domain.units import MILLIS_PER_CPU
from corral.engines.ray.nodes import TYPE_RESOURCE, RayNode, gpu_type_of, labels_of

UNTOLD: Final = 2**50  # of memory and CPUs, where the file says nothing of them
DEFAULT_WORKERS: Final = 2  # Ray's, of all kinds together
# Ray's label of a node that its autoscaler has made: its kind
_GROUP: Final = "node-group"


def kinds_of(config: Mapping[str, Any], *, gpu_type: str) -> tuple[NodeKind, ...]:
    """Return the kinds of worker nodes whose resources the file gives. `gpu_type`: the
    type of GPUs for which the file gives none.

    Raises: ValueError, TypeError, AttributeError if the configuration is not valid.
    """
    max_workers = int(config.get("max_workers", DEFAULT_WORKERS))
    kinds = [
        NodeKind(
            name=name,
            inventory=_inventory(name, kind, gpu_type),
            most=min(int(kind.get("max_workers", max_workers)), max_workers),
        )
        for name, kind in config.get("available_node_types", {}).items()
        if kind.get("resources") and name != config.get("head_node_type")
    ]
    return tuple(kind for kind in kinds if kind.most > 0)


def type_resources(config: Mapping[str, Any]) -> dict[str, str]:
    """Return GPU type -> Ray's resource name, for the types in the file: h100 ->
    accelerator_type:H100.

    Raises: TypeError, AttributeError if the configuration is not valid.
    """
    return {
        gpu_type_of([resource], {}): resource
        for kind in config.get("available_node_types", {}).values()
        for resource in kind.get("resources") or {}
        if resource.startswith(TYPE_RESOURCE)
    }


def left_of(
    kinds: Iterable[NodeKind], nodes: Iterable[RayNode]
) -> tuple[NodeKind, ...]:
    """Return the kinds with the number of nodes that could still be added; full kinds
    are dropped. Nodes that do not report their kind are matched by their GPUs, so that
    the number is too low rather than too high."""
    ray_nodes = [node for node in nodes if node.alive and not node.is_head]
    less = [
        replace(
            kind, most=kind.most - sum(_is_of(kind, ray_node) for ray_node in ray_nodes)
        )
        for kind in kinds
    ]
    return tuple(kind for kind in less if kind.most > 0)


def _is_of(kind: NodeKind, node: RayNode) -> bool:
    group_name = dict(node.labels).get(_GROUP)
    return (
        node.gpus == len(kind.inventory.gpus)
        if group_name is None
        else group_name == kind.name
    )


def _inventory(name: str, kind: Mapping[str, Any], gpu_type: str) -> Inventory:
    resources, labels = kind["resources"], kind.get("labels") or {}
    gpu_kind = gpu_type_of(resources, labels) or gpu_type
    gpus = tuple(
        Gpu(index=index, uuid=f"{name}-{index}", type=gpu_kind, memory_bytes=0)
        for index in range(int(resources.get("GPU", 0)))
    )
    cpus = resources.get("CPU")
    return Inventory(
        gpus=gpus,
        cpu_millis=UNTOLD if cpus is None else int(cpus * MILLIS_PER_CPU),
        memory_bytes=int(resources.get("memory", UNTOLD)),
        labels=labels_of(labels, resources),
    )
