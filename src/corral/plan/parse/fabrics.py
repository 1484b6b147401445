"""Reads the network between nodes from user text: ib-ndr, spectrum-x, "280 Gb/s
infiniband"."""

import re
from dataclasses import replace
from typing import Final

from corral.catalog.devices import Device, device, devices
from corral.catalog.facts import plain
from corral.catalog.links import LinkKind, link
from corral.domain.errors import SpecInvalid
from corral.plan.parse.links import said_across

USUAL_GPU: Final = "h100-sxm"  # whose fabric is taken where none is named
# Names of networks that run as another one of the catalog does, and their titles.
ALSO: Final = {
    "spectrumx": ("roce-400", "Spectrum-X, 400 Gb/s a GPU, as RoCE"),
    "iwarp": ("roce-100", "iWARP, 100 Gb/s a GPU, as RoCE"),
}
EFA: Final = {
    "a100": "efa-p4d",
    "h100": "efa-p5",
    "h200": "efa-p5en",
    "b200": "efa-p6",
    "trainium2": "efa-trn2",
    "trainium1": "efa-trn1",
}
_RATE: Final = re.compile(r"([\d.]+) ?([TG])(?:b/s|bps|bit/s|bits/s|B/s)", re.I)
_LEAST: Final = 1e7  # bytes a second of one GPU
_MOST: Final = 1e13


def fabric_said(text: str, used: Device | None = None) -> LinkKind:
    """Return the network between nodes that the text gives, by its name in the catalog
    or by its rate for one GPU.

    `used` is the GPU; a rate without a network's name applies to that GPU's usual
    network.
    Raises: NotFound with the nearest name; SpecInvalid for a link that connects GPUs
    inside a node, or for a rate that no network has.
    """
    gpu = used or device(USUAL_GPU)
    name = plain(text)
    if _RATE.search(text):
        return _by_rate(text, gpu)
    if name in ALSO:
        fabric_name, title = ALSO[name]
        return replace(link(fabric_name), title=title)
    if name == "efa":
        return (
            gpu.fabric
            if gpu.fabric.name.startswith("efa")
            else link(EFA.get(gpu.chip, "efa-p5"))
        )
    _refuse_inside(text, name)
    return link(text)


def _by_rate(text: str, gpu: Device) -> LinkKind:
    normalized_text = re.sub(r"(?i)spectrum-?x|iwarp", "roce", text)
    rate = re.sub(
        r"(?i)(gb|tb)(?:ps|its?/s)",
        lambda found: f"{found[1].title()}/s".replace("B", "b"),
        normalized_text,
    )
    link_kind = said_across(rate, node_gpus=gpu.node_gpus)
    if link_kind is None:
        link_kind = said_across(
            f"{rate} {_fabric_family(gpu.fabric)}", node_gpus=gpu.node_gpus
        )
    if link_kind is None or not _LEAST <= link_kind.bytes_per_s <= _MOST:
        hint = "write for example '280 Gb/s infiniband', '100 Gb/s ethernet', or a name: ib-ndr"
        raise SpecInvalid(
            f"{text!r} is not a known network, and not a possible rate", hint=hint
        )
    family = re.sub(r"[\d.,]+ ?(?:[TG]b/s|%).*|,.*", "", link_kind.title).strip()
    return replace(
        link_kind, title=f"{family}, {link_kind.bytes_per_s * 8e-9:g} Gb/s a GPU"
    )


def _fabric_family(fabric: LinkKind) -> str:
    kind = fabric.name.split("-")[0]
    return {"ib": "infiniband"}.get(kind, kind)


def _refuse_inside(text: str, name: str) -> None:
    inside = {
        plain(link_kind.name)
        for gpu_device in devices()
        for link_kind in (gpu_device.scale_up, gpu_device.bridge)
        if link_kind
    }
    between = {plain(gpu_device.fabric.name) for gpu_device in devices()}
    is_family = any(
        inside_name.startswith(name) and inside_name not in between
        for inside_name in inside
    )
    if name and name not in between and is_family:
        hint = "give for example ib-ndr or roce-400; for all links run: corral plan catalog links"
        raise SpecInvalid(
            f"{text} is a link inside of nodes; it cannot connect nodes", hint=hint
        )
