"""Capacity of Kubernetes' nodes for Corral, what other programs hold there, and which
nodes are gone."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from lightkube.models.core_v1 import NodeSpec, NodeStatus, PodStatus
from lightkube.resources.core_v1 import Node, Pod

from corral.domain.gpu_types import short_type
from corral.domain.ids import BootId, NodeId, is_name
from corral.domain.resources import Gpu, Inventory
from corral.domain.user_isolation import POD, PRIVILEGED_POD
from corral.engines.batch.interfaces import Foreign, LentNode
from corral.engines.kubernetes.quantities import millis, quantity, whole
from corral.engines.kubernetes.settings import (
    AGENT_BYTES,
    AGENTS,
    BASELINE,
    PORTS,
    PRIVILEGED,
    KubernetesSettings,
)
from corral.wire.time_and_place import LABEL

# Resources that device plugins offer, with the labels that name the type and tell the
# memory. Sources: github.com/NVIDIA/k8s-device-plugin (gpu-feature-discovery, MIG
# strategy mixed), github.com/ROCm/k8s-device-plugin (node labeller),
# github.com/intel/intel-device-plugins-for-kubernetes
WHOLE: Final[Mapping[str, tuple[str, ...]]] = {
    "nvidia.com/gpu": ("nvidia.com/gpu.product",),
    "amd.com/gpu": ("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"),
    "gpu.intel.com/i915": ("gpu.intel.com/product",),
    "gpu.intel.com/xe": ("gpu.intel.com/product",),
    "habana.ai/gaudi": ("habana.ai/hpu_type",),
}
MIG: Final = re.compile(r"nvidia\.com/mig-([0-9]+)g\.([0-9]+)gb.*", re.ASCII)
MEMORY_LABEL: Final = "nvidia.com/gpu.memory"  # in MiB
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
HOSTNAME: Final = "kubernetes.io/hostname"
OVER: Final = ("Succeeded", "Failed")
_MIB, _GB = 1024**2, 10**9


def gpu_resources(node: Node) -> list[str]:
    """Return the resource name by which each GPU of the node is requested, in the order
    of the GPUs' indices."""
    held_gpus = _gpu_counts(node)
    return [name for name in sorted(held_gpus) for _ in range(held_gpus[name])]


def unhealthy_gpus(node: Node) -> int:
    """Return how many of the node's GPUs it does not offer now.

    A failed device counts, and so do all devices while their device plugin restarts.
    Source:
    https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
    """
    offered = _allocatable(node)
    return sum(
        count - whole(offered, name) for name, count in _gpu_counts(node).items()
    )


def _gpu_counts(node: Node) -> dict[str, int]:
    """Return resource name -> number of GPUs, including GPUs that the node does not
    offer now."""
    offered, capacity = (
        _allocatable(node),
        (node.status.capacity if node.status else None) or {},
    )
    names = {
        name for name in (*offered, *capacity) if name in WHOLE or MIG.fullmatch(name)
    }
    return {name: max(whole(offered, name), whole(capacity, name)) for name in names}


def gpu_types(node: Node) -> list[str]:
    """Return the type of each GPU, by its index."""
    return [_type_of(resource, _label_map(node)) for resource in gpu_resources(node)]


def lent_node(
    node: Node,
    foreign: Foreign,
    settings: KubernetesSettings,
    claims: Mapping[str, str],
) -> LentNode:
    """Return the node as Corral uses it. `claims`: PersistentVolumeClaim -> its uid. An
    equal uid proves that two nodes see the same files in the claim."""
    name = NodeId(_node_name(node))
    allocatable, labels = _allocatable(node), _label_map(node)
    gpus = tuple(
        Gpu(
            index=index,
            uuid=f"{name}/{resource}/{index}",
            type=_type_of(resource, labels),
            memory_bytes=_memory_of(resource, labels),
        )
        for index, resource in enumerate(gpu_resources(node))
    )
    inventory = Inventory(
        gpus=gpus,
        cpu_millis=millis(allocatable, "cpu"),
        memory_bytes=max(
            whole(allocatable, "memory") - max(len(gpus), AGENTS) * AGENT_BYTES, 0
        ),
        ports=PORTS,
        shared=tuple(
            sorted(
                (path, claims[claim])
                for claim, path in settings.mounted_claims
                if claim in claims
            )
        ),
        labels=_translate_labels(labels, settings),
        containment=PRIVILEGED_POD if settings.security == PRIVILEGED else POD,
        shared_account=_account_text(settings),
    )
    return LentNode(
        node=name,
        boot=BootId(boot_of(node)),
        address=address_of(node),
        inventory=inventory,
        foreign=replace(foreign, gpus=foreign.gpus + unhealthy_gpus(node)),
        closed=closed(node, settings),
        down=_out_of_service_text(node),
        silent=not _is_ready(node),
    )


def _account_text(settings: KubernetesSettings) -> str:
    """Return the account under which the ranks of all users run, as words for a
    message."""
    if settings.security == PRIVILEGED:
        return "root"
    if settings.security == BASELINE:
        return "the user of their image"
    return f"UID {settings.uid_and_gid[0]}"


def is_lent(node: Node, settings: KubernetesSettings) -> bool:
    """Whether the node is one of those that Corral is configured to use."""
    labels = _label_map(node)
    has_labels = all(
        labels.get(label) == value for label, value in settings.node_labels
    )
    return has_labels and is_name(_node_name(node))


def closed(node: Node, settings: KubernetesSettings) -> str:
    """Return why the node takes no new pods of Corral; "" if it does."""
    spec = node.spec or NodeSpec()
    if spec.unschedulable:
        return "the node is cordoned in Kubernetes"
    taints = [
        taint.key for taint in spec.taints or [] if taint.effect != "PreferNoSchedule"
    ]
    strange = [key for key in taints if key not in settings.tolerated]
    return (
        f"the node has a taint that Corral's pods do not tolerate: {', '.join(strange)}"
        if strange
        else ""
    )


def gone_node(name: NodeId, boot: str) -> LentNode:
    """Return the entry for a node that Corral used and that no longer exists.

    By the rules of Kubernetes, a node is deleted only when it is known to be dead:
    https://kubernetes.io/docs/tasks/run-application/force-delete-stateful-set-pod/
    """
    down = f"node {name} has been deleted from Kubernetes"
    return LentNode(
        node=name,
        boot=BootId(boot),
        address=name,
        inventory=Inventory(),
        down=down,
        gone=True,
    )


def foreign_use(pods: Iterable[Pod]) -> dict[NodeId, Foreign]:
    """Return what pods outside Corral hold, by node; ended pods hold nothing.

    A pod for which the scheduler is making room by preemption already counts on its
    node.
    """
    foreigns_by_node: dict[NodeId, Foreign] = {}
    for pod in pods:
        status = pod.status or PodStatus()
        node_name = (
            pod.spec.nodeName if pod.spec else None
        ) or status.nominatedNodeName
        if not node_name or status.phase in OVER:
            continue
        requested = asked_by(pod)
        previous_use = foreigns_by_node.get(node := NodeId(node_name), Foreign())
        gpus = [name for name in requested if name in WHOLE or MIG.fullmatch(name)]
        foreigns_by_node[node] = Foreign(
            gpus=previous_use.gpus + sum(whole(requested, name) for name in gpus),
            cpu_millis=previous_use.cpu_millis + millis(requested, "cpu"),
            memory_bytes=previous_use.memory_bytes + whole(requested, "memory"),
        )
    return foreigns_by_node


def asked_by(pod: Pod) -> dict[str, str]:
    """Return the resources that the scheduler counts for a pod: the sum over its
    containers, or the largest init container if that needs more.

    Source:
    https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
    """
    if pod.spec is None:
        return {}
    total: dict[str, str] = {}
    for container in pod.spec.containers:
        for name, value in _resource_requests(container.resources).items():
            total[name] = str(quantity(total.get(name)) + quantity(value))
    for container in pod.spec.initContainers or []:
        for name, value in _resource_requests(container.resources).items():
            total[name] = str(max(quantity(total.get(name)), quantity(value)))
    return total


def known_nodes(text: str | None) -> dict[str, str]:
    """Return node -> boot id, as stored in the ConfigMap; {} for text that cannot be
    parsed."""
    try:
        node_entries = json.loads(text or "{}")
    except ValueError:
        return {}
    return (
        {str(name): str(boot) for name, boot in node_entries.items()}
        if isinstance(node_entries, dict)
        else {}
    )


def address_of(node: Node) -> str:
    """Return the address of the node within the cluster."""
    status = node.status or NodeStatus()
    kinds = {
        address.type: address.address for address in reversed(status.addresses or [])
    }
    return kinds.get("InternalIP") or kinds.get("Hostname") or _node_name(node)


def _resource_requests(resources: object) -> dict[str, str]:
    limits = getattr(resources, "limits", None) or {}
    requests = getattr(resources, "requests", None) or {}
    return {**limits, **requests}


def _type_of(resource: str, labels: Mapping[str, str]) -> str:
    """Return the type of the GPUs that the resource counts, for example h100; for a MIG
    device the type and its profile: h100-1g.10gb."""
    mig = MIG.fullmatch(resource)
    names: Sequence[str] = WHOLE["nvidia.com/gpu"] if mig else WHOLE[resource]
    product = next((labels[name] for name in names if labels.get(name)), "")
    base = (
        short_type(re.sub(r"-MIG-.*", "", product))
        if product
        else resource.partition(".")[0]
    )
    return f"{base}-{resource.partition('mig-')[2]}" if mig else base


def _memory_of(resource: str, labels: Mapping[str, str]) -> int:
    if mig := MIG.fullmatch(resource):
        return int(mig[2]) * _GB
    memory_text = (
        labels.get(MEMORY_LABEL, "") if resource.startswith("nvidia.com/") else ""
    )
    return int(memory_text) * _MIB if memory_text.isdecimal() else 0


def _translate_labels(
    labels: Mapping[str, str], settings: KubernetesSettings
) -> tuple[tuple[str, str], ...]:
    """Return the node's labels for placement. Topology labels are added under Corral's
    names of the topology levels: rack, pod and nvlink."""
    label_values = {
        name: value
        for name, value in labels.items()
        if name != HOSTNAME and LABEL.fullmatch(name) and LABEL.fullmatch(value)
    }
    for level, names in settings.topology:
        value = next((labels[name] for name in names if labels.get(name)), "")
        if value and LABEL.fullmatch(value):
            label_values.setdefault(level, value)
    label_values.pop("node", None)  # every node's own name
    return tuple(sorted(label_values.items()))


def _out_of_service_text(node: Node) -> str:
    """Return a text about the node's out-of-service taint, by which an operator
    confirms that the machine is off; "" without this taint.

    Source:
    https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown
    """
    spec = node.spec or NodeSpec()
    if any(taint.key == OUT_OF_SERVICE for taint in spec.taints or []):
        return f"node {_node_name(node)} is out of service (taint {OUT_OF_SERVICE})"
    return ""


def _is_ready(node: Node) -> bool:
    """Return whether the node's condition Ready is True. False and Unknown only mean
    silence: the kubelet and containers may still run.

    Source: https://kubernetes.io/docs/reference/node/node-status/#condition
    """
    status = node.status or NodeStatus()
    return any(
        condition.type == "Ready" and condition.status == "True"
        for condition in status.conditions or []
    )


def boot_of(node: Node) -> str:
    """Return the node's boot id, which changes when the machine restarts; "" if it is
    unknown."""
    info = (node.status or NodeStatus()).nodeInfo
    return info.bootID if info is not None else ""


def _node_name(node: Node) -> str:
    return (node.metadata.name if node.metadata else None) or ""


def _label_map(node: Node) -> Mapping[str, str]:
    return (node.metadata.labels if node.metadata else None) or {}


def _allocatable(node: Node) -> Mapping[str, str]:
    return (node.status.allocatable if node.status else None) or {}
