"""Interpretation of Ray's answers: which nodes exist, what they have, and which other
programs use them. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from corral.domain.gpu_types import short_type
from corral.domain.ids import NodeId
from corral.engines.ray.start_options import NODE_LABEL, PRETEND_LABEL
from corral.wire.time_and_place import LABEL

# of those that want as much; the others are seen when these are served
MOST_WAITING: Final = 64
_HEAD: Final = "node:__internal_head__"
_OWN_LABEL: Final = "ray.io/"
_TYPE_LABEL: Final = "ray.io/accelerator-type"
TYPE_RESOURCE: Final = "accelerator_type:"
AMD: Final = "amd"
# How Ray begins the types of other accelerators than NVIDIA's, ray.util.accelerators.
_VENDORS: Final = {
    "amd-": AMD,
    "intel-gaudi": "",
    "intel-": "intel",
    "mxc": "metax",
    "apple-": "apple",
    "m1": "apple",
    "m2": "apple",
    "m3": "apple",
    "tpu-": "",
    "aws-": "",
    "ascend": "",
    "furiosa": "",
    "mobilint": "",
}
# Ray's own numbers of why a node died, gcs.proto NodeDeathInfo: 3 and 4 are drained
# nodes, which the autoscaler hands back once they are idle, or when their machine is
# taken away.
_DRAINED: Final = frozenset({3, 4})


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """A row of Ray's node table. `ray_node` is Ray's id, which changes each time the
    node's Ray restarts; `id` is the node's name, which stays. `index`: the node's
    position among the nodes with the same address."""

    id: NodeId
    ray_node: str
    address: str
    alive: bool
    index: int = 0
    gpus: int = 0
    gpu_type: str = ""
    vendor: str = ""  # of its GPUs, as Ray has detected it
    pretend: bool = False  # they are made up
    gpus_used: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    death: str = ""
    drained: bool = False
    is_head: bool = False  # of Ray's own


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySnapshot:
    """State of Ray at one moment. `waiting_gpus`: the number of GPUs that each of Ray's
    waiting tasks, actors and bundles asks for."""

    nodes: tuple[RayNode, ...]
    waiting_gpus: tuple[int, ...] = ()


def look_of(answer: Mapping[str, Any], names: Mapping[str, NodeId]) -> RaySnapshot:
    """Parse the helper's answer to `look`. `names`: the names that nodes of Ray had
    before."""
    rows = newest_of_each(answer["nodes"], names)
    used_by_node = answer["used"]
    beside: Counter[str] = Counter()
    nodes = []
    for name, row in sorted(rows.items()):
        address = str(row["NodeManagerAddress"])
        nodes.append(
            _node_from_row(
                name, row, used_by_node.get(row["NodeID"], {}), beside[address]
            )
        )
        beside[address] += 1
    waiting_gpus = [
        gpus
        for waiting_entry in answer["waiting"]
        if (gpus := _whole_gpu_count(waiting_entry["resources"]))
        for _ in range(min(int(waiting_entry["count"]), MOST_WAITING))
    ]
    for _ in range(int(answer["own"])):  # they are Corral's, about to be held
        if 1 in waiting_gpus:
            waiting_gpus.remove(1)
    return RaySnapshot(nodes=tuple(nodes), waiting_gpus=tuple(waiting_gpus))


def newest_of_each(
    rows: Sequence[Mapping[str, Any]], names: Mapping[str, NodeId]
) -> dict[NodeId, Mapping[str, Any]]:
    """Return the newest row for each node name. Of several rows with one name, the
    living one counts, else the last one.

    Several living nodes at one address that have no name of their own get their port as
    a suffix. A node that already has the name without a port keeps it; among new nodes
    Ray's own head gets it first.
    """
    newest_by_name: dict[NodeId, Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: _naming_order(row, names)):
        name = names.get(str(row["NodeID"])) or _name_of(row)
        if row["Alive"] and name in newest_by_name and newest_by_name[name]["Alive"]:
            name = NodeId(f"{name}-{row['NodeManagerPort']}")
        newest_by_name[name] = row
    return newest_by_name


def _naming_order(
    row: Mapping[str, Any], names: Mapping[str, NodeId]
) -> tuple[bool, bool, bool, str]:
    """Return the sort key by which nodes are named: dead nodes first, so that living
    ones take over their names; then nodes that have a name already."""
    is_head = _HEAD in row.get("Resources", {})
    is_new = str(row["NodeID"]) not in names
    return bool(row["Alive"]), is_new, not is_head, str(row["NodeManagerPort"])


def _name_of(row: Mapping[str, Any]) -> NodeId:
    """Return the node's name in Corral: its label, else Ray's name for it, by default
    its address."""
    name = (
        row.get("Labels", {}).get(NODE_LABEL)
        or row["NodeName"]
        or row["NodeManagerAddress"]
    )
    return NodeId(str(name).replace(":", "-").replace("%", "-"))


def _node_from_row(
    name: NodeId, row: Mapping[str, Any], used: Mapping[str, float], index: int
) -> RayNode:
    resources = row.get("Resources", {})
    alive = bool(row["Alive"])
    return RayNode(
        id=name,
        ray_node=str(row["NodeID"]),
        address=str(row["NodeManagerAddress"]),
        alive=alive,
        index=index,
        gpus=_whole_gpu_count(resources),
        gpu_type=gpu_type_of(resources, row.get("Labels", {})),
        vendor=vendor_of(row.get("Labels", {}), resources),
        pretend=PRETEND_LABEL in row.get("Labels", {}),
        gpus_used=_whole_gpu_count(used),
        labels=labels_of(row.get("Labels", {}), resources),
        death="" if alive else str(row.get("DeathReasonMessage") or "no reason given"),
        is_head=_HEAD in resources,
        drained=not alive and int(row.get("DeathReason") or 0) in _DRAINED,
    )


def was_handed_back(row: RayNode, *, scales: bool) -> bool:
    """Return whether Ray's autoscaler has removed the node's machine. `scales`: the Ray
    cluster has an autoscaler. Without one, a drained node is one whose Ray was asked to
    end, and processes may still live on it."""
    return scales and row.drained


def _whole_gpu_count(resources: Mapping[str, float]) -> int:
    """Return the number of GPUs, rounded up: a GPU that is used in part cannot be given
    to other work."""
    return -int(-float(resources.get("GPU", 0)) // 1)


def gpu_type_of(resources: Iterable[str], labels: Mapping[str, str]) -> str:
    """Return the GPU type that Ray has detected, in the form that jobs use, for example
    h100; "" if it is unknown."""
    detected = (name for name in resources if name.startswith(TYPE_RESOURCE))
    type_name = (
        labels.get(PRETEND_LABEL)
        or labels.get(_TYPE_LABEL)
        or next(detected, "").removeprefix(TYPE_RESOURCE)
    )
    return short_type(type_name) if type_name else ""


def labels_of(
    labels: Mapping[str, str], resources: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    """Return the node's labels for placement: those given to `ray start --labels`, the
    vendor of its GPUs, and the location that Ray reports (zone, region, market type).
    """
    label_values = {}
    for name, value in labels.items():
        if name in (NODE_LABEL, PRETEND_LABEL, "ray.io/node-id", _TYPE_LABEL):
            continue
        label_values[name.removeprefix(_OWN_LABEL)] = value
    if vendor := vendor_of(labels, resources):
        label_values.setdefault("gpu-vendor", vendor)
    return tuple(
        sorted(
            (n, v)
            for n, v in label_values.items()
            if LABEL.fullmatch(n) and LABEL.fullmatch(v)
        )
    )


def vendor_of(labels: Mapping[str, str], resources: Iterable[str]) -> str:
    """Return the vendor of the GPUs that Ray has detected. Ray's type names contain the
    vendor, except for NVIDIA. "" if there are no GPUs, or if the accelerator is not a
    GPU."""
    type_resources = (name for name in resources if name.startswith(TYPE_RESOURCE))
    detected = labels.get(_TYPE_LABEL) or next(type_resources, "").removeprefix(
        TYPE_RESOURCE
    )
    if not detected:
        return ""
    begins = detected.lower()
    known_vendors = (
        vendor for prefix, vendor in _VENDORS.items() if begins.startswith(prefix)
    )
    return next(known_vendors, "nvidia")
