"""Time of one row of the collectives table: one collective, one size, one system."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from corral.catalog.devices import Device, device
from corral.catalog.links import LinkKind
from corral.catalog.transports import transport
from corral.domain.errors import NotFound
from corral.perf.collectives import (
    Algorithm,
    Collective,
    collective_ways,
    small_all_reduce_seconds,
)
from corral.perf.topology import GpuGroup, Wires
from corral.plan.parse.links import said_across, said_between_nodes, said_inside
from corral.plan.rows.row import Predicted, Row, RowRefused

LARGE_BYTES: Final = 2.0**30  # if the row has no size
NAMES: Final = {
    "allreduce": Collective.ALL_REDUCE,
    "allgather": Collective.ALL_GATHER,
    "reducescatter": Collective.REDUCE_SCATTER,
    "alltoall": Collective.ALL_TO_ALL,
    "moealltoalldispatch": Collective.ALL_TO_ALL,
    "moealltoallcombine": Collective.ALL_TO_ALL,
    "broadcast": Collective.BROADCAST,
    "reduce": Collective.REDUCE,
    "sendrecv": Collective.SEND_RECV,
    "pprdmawrite": Collective.SEND_RECV,
    "ppxgmilink": Collective.SEND_RECV,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTopology:
    """Group and links of the GPUs of a row. `remarks` lists the assumptions for empty
    cells."""

    group: GpuGroup
    wires: Wires
    remarks: tuple[str, ...]


def predict(row: Row) -> Predicted:
    """Return the predicted microseconds of the collective. It is out of place, and all
    GPUs start at once.

    Raises: RowRefused where the collective or its size is unknown, or both the GPU and
    the links are.
    """
    collective = _collective(row.get("collective", ""))
    remarks: list[str] = []
    size = _collective_bytes(row, remarks)
    topology = place_of(row)
    remarks += topology.remarks
    if collective is Collective.ALL_GATHER and row.get("library", "").startswith(
        "HCCL"
    ):
        size *= topology.group.size  # which counts what one rank puts in
    algorithm = row.get("algo", "").lower()
    if "custom" in algorithm:
        seconds = small_all_reduce_seconds(size, topology.group, topology.wires)
        return Predicted(values={"pred_time_us": seconds * 1e6}, remarks=tuple(remarks))
    algorithm_options = collective_ways(
        collective, size, topology.group, topology.wires
    )
    collective_choices = [
        algorithm_option
        for algorithm_option in algorithm_options
        if algorithm_option.algorithm == _requested_algorithm(algorithm)
    ]
    seconds = min(
        algorithm_option.seconds
        for algorithm_option in collective_choices or algorithm_options
    )
    if "torch" in row.get("library", "") and collective is not Collective.SEND_RECV:
        seconds = max(seconds, transport(topology.wires.scale_up.name).host_call_s)
    return Predicted(values={"pred_time_us": seconds * 1e6}, remarks=tuple(remarks))


def _collective_bytes(row: Row, remarks: list[str]) -> float:
    """Return the bytes of the collective.

    Without a size in the row, an exchange of tokens takes it from the notes. Tokens are
    sent to the experts in 8 bits and back in 16, as in DeepSeek-V3. Other collectives
    get a buffer so large that only the rate counts.

    Raises: RowRefused, if the notes do not give the number of exchanged tokens. Source:
    arXiv:2412.19437, section 3.3.
    """
    if (size_bytes := _parse_number(row, "size_bytes")) is not None:
        return size_bytes
    name, notes = row.get("collective", ""), row.get("notes", "")
    if "moe" not in name:
        remarks.append("a buffer of 1 GiB")
        return LARGE_BYTES
    matches = [
        re.search(pattern, notes, re.I)
        for pattern in (
            r"(\d+) tokens|tokens (\d+)",
            r"hidden (\d+)",
            r"top-?k? ?(\d+)",
        )
    ]
    tokens, width, experts = (
        next((int(group_text) for group_text in match.groups() if group_text), 0)
        if match
        else 0
        for match in matches
    )
    if not tokens * width * experts:
        raise RowRefused(
            "the row gives no size in bytes", hint="fill the column size_bytes"
        )
    remarks.append(f"{tokens} tokens of {width} numbers, each to {experts} experts")
    return tokens * width * experts * (2 if "combine" in name else 1)


def place_of(row: Row) -> RowTopology:
    """Return how the row's GPUs are distributed and linked.

    Raises: RowRefused if neither the GPU nor its links are known, or the numbers do not
    fit together.
    """
    remarks: list[str] = []
    known_device = _find_device(row.get("gpu", ""))
    gpus = _parse_number(row, "n_gpus")
    if not gpus or gpus < 1:
        raise RowRefused(
            "the row gives no number of GPUs", hint="fill the column n_gpus"
        )
    nodes = _node_count(row, round(gpus), known_device, remarks)
    if gpus % nodes:
        raise RowRefused(f"{gpus:.0f} GPUs cannot be divided evenly over {nodes} nodes")
    gpus_per_node = round(gpus) // nodes
    text = row.get("intra_link", "")
    if "bridge" in text.lower() and nodes == 1:
        return _bridged_topology(round(gpus), known_device, text, remarks)
    inside = said_inside(text)
    if inside is None:
        inside = _default_link(known_device, "scale_up")
        remarks.append(f"intra_link: {inside.title}, the usual one for this GPU")
    domain = max(
        gpus_per_node, known_device.domain_gpus if known_device else gpus_per_node
    )
    node_gpus = round(
        _parse_number(row, "gpus_per_node")
        or (known_device.node_gpus if known_device else gpus_per_node)
    )
    measured = said_between_nodes(row.get("inter_link", ""))
    if (
        nodes > 1
        and measured is not None
        and not (known_device and is_in_rack(row, known_device))
    ):
        wires = _measured_between(
            measured, inside, gpus_per_node, known_device, remarks
        )
    else:
        fabric = _resolve_fabric(row, nodes, known_device, node_gpus, remarks)
        wires = Wires(scale_up=inside, domain_gpus=domain, fabric=fabric or inside)
    per_domain = gpus_per_node
    if nodes > 1 and known_device is not None and is_in_rack(row, known_device):
        per_domain = largest_share(round(gpus), gpus_per_node, known_device.domain_gpus)
        remarks.append(f"{inside.title} connects {per_domain} GPUs of several nodes")
    group = GpuGroup(size=round(gpus), per_domain=per_domain)
    return RowTopology(group=group, wires=wires, remarks=tuple(remarks))


def is_in_rack(row: Row, known: Device) -> bool:
    """Return whether the GPU's links reach beyond its node, and the row names no other
    network."""
    link_text = row.get("inter_link", "")
    names_fabric = said_across(link_text, node_gpus=known.node_gpus) is not None
    return known.domain_gpus > known.node_gpus and not names_fabric


def largest_share(gpus: int, each: int, domain_gpus: int) -> int:
    """Return the most GPUs per domain that divide `gpus` evenly and are whole nodes of
    `each` GPUs."""
    return next(
        share
        for share in range(min(gpus, max(domain_gpus, each)), 0, -1)
        if gpus % share == 0 and (share % each == 0)
    )


def _measured_between(
    bytes_per_s: float,
    inside: LinkKind,
    each: int,
    known: Device | None,
    remarks: list[str],
) -> Wires:
    """Return the links for a rate that was measured between two nodes. A rate near the
    usual adapter's rate for such a GPU counts as that of each GPU. A rate far below it
    counts as that of the node, and is divided by its GPUs."""
    usual = _default_link(known, "fabric")
    is_own = bytes_per_s > usual.bytes_per_s / 2
    remarks.append(
        f"inter_link: the rate measured between two nodes, {'for each GPU' if is_own else 'shared'}"
    )
    fabric = replace(usual, bytes_per_s=bytes_per_s if is_own else bytes_per_s / each)
    return Wires(scale_up=inside, domain_gpus=each, fabric=fabric)


def _bridged_topology(
    gpus: int, known: Device | None, text: str, remarks: list[str]
) -> RowTopology:
    """Return the topology of bridged GPUs: a bridge joins a few GPUs, and the host's
    PCIe joins these groups."""
    if known is None or known.bridge is None:
        raise RowRefused(
            f"the link {text!r} requires a GPU that has a bridge",
            hint="fill the column gpu",
        )
    inside = min(gpus, known.bridge_gpus)
    if gpus % inside:
        raise RowRefused(
            f"{gpus} GPUs cannot be divided evenly over bridges of {known.bridge_gpus} GPUs"
        )
    wires = Wires(
        scale_up=known.bridge, domain_gpus=known.bridge_gpus, fabric=known.scale_up
    )
    group = GpuGroup(size=gpus, per_domain=inside)
    return RowTopology(group=group, wires=wires, remarks=tuple(remarks))


def _resolve_fabric(
    row: Row, nodes: int, known: Device | None, node_gpus: int, remarks: list[str]
) -> LinkKind | None:
    if nodes == 1:
        return known.fabric if known else None
    fabric = said_across(row.get("inter_link", ""), node_gpus=node_gpus)
    if fabric is None:
        fabric = _default_link(known, "fabric")
        remarks.append(f"inter_link: {fabric.title}, the usual one for this GPU")
    rate = _parse_number(row, "nic_GBps_per_gpu")
    return fabric if rate is None else replace(fabric, bytes_per_s=rate * 1e9)


def _default_link(known: Device | None, which: str) -> LinkKind:
    if known is None:
        raise RowRefused(
            "the catalog contains neither the GPU nor the link of the row",
            hint="run: corral plan catalog gpus",
        )
    link_kind: LinkKind = getattr(known, which)
    return link_kind


def _node_count(row: Row, gpus: int, known: Device | None, remarks: list[str]) -> int:
    nodes = _parse_number(row, "nodes")
    if nodes is not None and nodes >= 1:
        return round(nodes)
    gpus_per_node = _parse_number(row, "gpus_per_node") or (
        known.node_gpus if known else 8
    )
    remarks.append(f"nodes: {gpus_per_node:.0f} GPUs in each")
    return ceil(gpus / gpus_per_node)


def _find_device(text: str) -> Device | None:
    for name in _spellings(text):
        try:
            return device(name)
        except NotFound:
            continue
    return None


def _spellings(text: str) -> Iterator[str]:
    """Yield spellings of a GPU's name to look up: the name itself, the name without its
    part in brackets, the part in brackets, and the parts between slashes."""
    yield text
    bare = re.sub(r"\(.*?\)", "", text).strip()
    for spelling in (bare, *re.findall(r"\((.*?)\)", text)):
        yield spelling
        yield from spelling.split("/")


def _collective(text: str) -> Collective:
    plain = re.sub(r"[^a-z]", "", text.lower())
    if plain not in NAMES:
        raise RowRefused(
            f"{text!r} is not a known collective",
            hint=f"use one of: {', '.join(Collective)}",
        )
    return NAMES[plain]


def _requested_algorithm(algorithm: str) -> Algorithm | None:
    """Return the algorithm that the row prescribes; None if the library is free to
    choose."""
    if "nvls" in algorithm and "off" not in algorithm:
        return None if "ring" in algorithm else Algorithm.IN_SWITCH
    if "ring" in algorithm:
        return Algorithm.RING
    return Algorithm.TREE if "tree" in algorithm else None


def _parse_number(row: Row, column: str) -> float | None:
    try:
        return float(row.get(column) or "")
    except ValueError:
        return None
