"""Reads links in usual notation: "NVLink4 450 GB/s per direction", "8x 400 Gb/s RoCE
per node"."""

import re
from dataclasses import replace
from typing import Final

from corral.catalog.links import LinkKind, link

INSIDE: Final = (  # the first that is found; the catalog's name of it
    (r"bridge", "nvlink-bridge-3"),
    (r"nvl ?72", "nvl72"),
    (r"nvlink ?-?2.*mesh|mesh.*nvlink ?-?2", "nvlink-2"),
    (r"nvlink ?-?2", "nvlink-2-switch"),
    (r"nvlink ?-?(?:gen ?)?([345])", r"nvlink-\1"),
    (r"pcie ?-?(?:gen ?)?5(?:\.0)? ?x8", "pcie-5-x8"),
    (r"pci(?:e|-express) ?-?(?:gen ?)?([3456])", r"pcie-\1"),
    (r"gen ?([3456])", r"pcie-\1"),
)
ACROSS: Final = (
    (r"p4d", "efa-p4d"),
    (r"p5en|efa ?v3", "efa-p5en"),
    (r"p6|efa ?v4", "efa-p6"),
    (r"efa", "efa-p5"),
    (r"slingshot", "slingshot-11"),
    (r"omni-?path|\bopa\b", "omni-path-100"),
    (r"xdr|cx-?8|connectx-?8", "ib-xdr"),
    (r"ndr", "ib-ndr"),
    (r"hdr", "ib-hdr"),
    (r"edr", "ib-edr"),
    (r"roce.*800|800.*roce", "roce-800"),
    (r"roce.*400|400.*roce", "roce-400"),
    (r"roce.*200|200.*roce", "roce-200"),
    (r"roce.*100|100.*roce", "roce-100"),
    (r"infiniband.*200|200.*infiniband|cx-?6|connectx-?6", "ib-hdr"),
    (r"roce", "roce-400"),
    (r"infiniband|\bib\b|cx-?7|connectx-?7", "ib-ndr"),
    (r"(?:ethernet|tcp).*100|100.*(?:ethernet|tcp)", "ethernet-100"),
    (r"(?:ethernet|tcp).*\b10\b|\b10\b.*(?:ethernet|tcp)", "ethernet-10"),
    (r"ethernet|tcp|socket", "ethernet-25"),
)


def said_inside(text: str) -> LinkKind | None:
    """Return the link between the GPUs of a node, at the rate in the text; None if the
    text names no link. If the rate is about twice the usual rate of the link, it counts
    as the sum of both directions."""
    link_kind = _match_link(text.lower(), INSIDE)
    rate = re.search(r"([\d.]+) ?GB/s", text)
    if link_kind is None or rate is None:
        return link_kind
    bytes_per_s = float(rate[1]) * 1e9
    if re.search(r"bidirectional|both|total|aggregate", text.lower()) or (
        1.8 < bytes_per_s / link_kind.bytes_per_s < 2.2
    ):
        bytes_per_s /= 2
    if not 0.2 < bytes_per_s / link_kind.bytes_per_s < 1.5:
        return link_kind  # of one of its lanes, or of something else
    return replace(link_kind, bytes_per_s=bytes_per_s)


def said_across(text: str, *, node_gpus: int) -> LinkKind | None:
    """Return the link between nodes, at its rate for one GPU; None if the text names no
    link.

    A rate is that of one adapter, with one adapter per GPU, unless the text also has a
    number of adapters or a rate per node.
    """
    link_kind = _match_link(text.lower(), ACROSS)
    rate = re.search(r"([\d.]+) ?(T|G)(b/s|bps|bit/s|B/s)", text)
    if link_kind is None or rate is None:
        return link_kind
    bits = (
        float(rate[1])
        * (1e12 if rate[2] == "T" else 1e9)
        * (8 if rate[3][0] == "B" else 1)
    )
    count = re.search(r"(?<![\d.])(\d+) ?(?:[x×]|NIC|adapter|card|HCA|rail)", text)
    bytes_per_s = bits / 8 * (int(count[1]) if count else 1)
    if count or re.search(r"(?:per|a|each) node", text):
        bytes_per_s /= node_gpus
    return replace(link_kind, bytes_per_s=bytes_per_s)


def said_between_nodes(text: str) -> float | None:
    """Return the bytes per second measured between two nodes; None if the text has no
    such rate."""
    rate = re.search(r"([\d.]+) ?GB/s per pair", text)
    return float(rate[1]) * 1e9 if rate else None


def _match_link(text: str, known: tuple[tuple[str, str], ...]) -> LinkKind | None:
    for pattern, name in known:
        if match := re.search(pattern, text):
            return link(match.expand(name))
    return None
