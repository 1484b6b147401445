"""Labels of the nodes of one machine: those that the user asked for, and those of a
pretended topology."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from corral.domain.errors import SpecInvalid
from corral.domain.placement_constraints import NODE_LABEL
from corral.wire.time_and_place import LABEL

Pairs = tuple[tuple[str, str], ...]
_LABELLED: Final = re.compile(r"(?:(n\d+):)?([^=:]+)(?:=(.*))?", re.ASCII)
_DOMAINS: Final = re.compile(r"(rack|pod|nvlink)s?=(\d{1,4})", re.ASCII)
_FIRST: Final = {"nvlink": "d", "rack": "r", "pod": "p"}


def labels_of_nodes(
    nodes: int, texts: Iterable[str], topology: str | None
) -> list[Pairs]:
    """Return the labels of each of the nodes n1, n2, ..., sorted.

    `texts`: LABEL=VALUE for all nodes, n2:LABEL=VALUE for one node; without =VALUE the
    value is true. `topology`: for example racks=2,pods=1: the nodes, in order, are
    divided into this many equal parts.
    Raises: SpecInvalid.
    """
    labels_list: list[dict[str, str]] = [{} for _ in range(nodes)]
    for label, count in _parse_topology(nodes, topology).items():
        for node_index, node_labels in enumerate(labels_list):
            node_labels[label] = f"{_FIRST[label]}{node_index * count // nodes + 1}"
    for text in texts:
        node_number, label, value = _parse_label(text, nodes)
        for node_labels in (
            labels_list if node_number is None else [labels_list[node_number]]
        ):
            node_labels[label] = value
    return [tuple(sorted(node_labels.items())) for node_labels in labels_list]


def labels_still_meant(texts: Iterable[str], nodes: int) -> tuple[str, ...]:
    """Return the labels in `texts`, except those for a single node that a cluster of n1
    to n`nodes` does not have."""
    matches = ((text, _LABELLED.fullmatch(text)) for text in texts)
    return tuple(
        text
        for text, label_match in matches
        if not (label_match and label_match[1]) or int(label_match[1][1:]) <= nodes
    )


def _parse_topology(nodes: int, topology: str | None) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for domain_text in topology.split(",") if topology else ():
        match = _DOMAINS.fullmatch(domain_text.strip())
        if match is None:
            raise SpecInvalid(
                f"--topology {topology}: {domain_text!r} is not of the form racks=N, "
                "pods=N or nvlink=N",
                hint="for example: --topology racks=1",
            )
        count = int(match.group(2))
        if not 1 <= count <= nodes:
            raise SpecInvalid(
                f"--topology {topology}: {domain_text!r} is not valid with --nodes "
                f"{nodes}",
                hint=f"use a number from 1 to {nodes}; for example: --topology racks=1",
            )
        counts[match.group(1)] = count
    return counts


def _parse_label(text: str, nodes: int) -> tuple[int | None, str, str]:
    """Parse one label. Return (index of the node or None for all nodes, label, value)."""
    match = _LABELLED.fullmatch(text)
    node, label, value = match.groups() if match else (None, "", None)
    value = "true" if value is None else value
    if not LABEL.fullmatch(label) or not LABEL.fullmatch(value):
        raise SpecInvalid(
            f"--label {text} is not a valid label: use letters, digits and, between "
            "them, . _ - /",
            hint="write: --label zone=a, or --label n2:zone=a for one node",
        )
    if label == NODE_LABEL:
        raise SpecInvalid(
            f"--label {text}: the label {NODE_LABEL} is reserved for the name of the "
            "node",
            hint="use another label name",
        )
    if node is not None and not 1 <= int(node[1:]) <= nodes:
        raise SpecInvalid(
            f"--label {text}: there is no node {node}",
            hint=f"use a node from n1 to n{nodes}",
        )
    return (None if node is None else int(node[1:]) - 1), label, value
