"""Computing devices: GPUs and TPUs, by data sheet and by measurement."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from corral.catalog.facts import Fact, subject, table
from corral.catalog.links import LinkKind, link
from corral.catalog.precisions import Precision

# words that drivers and benchmarks add, and that tell no device apart
SILENT: Final = re.compile(
    r"nvidia|amd|intel|google|aws|apple|instinct|geforce|radeon|tesla|gpu|accelerator|generation|oam"
    r"|grace|hopper|superchip|virtualized|dgx|hgx|hbm[234]e?|nps1|spx|[0-9]+[wx]"
)
# one a device
SOCKETS: Final = {"sxm2": "sxm", "sxm4": "sxm", "sxm5": "sxm", "sxm6": "sxm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One kind of GPU. Rates are dense: without sparsity, as the data sheet says.

    `flops`: multiply and add, 2 a MAC, by precision; one it lacks is not named.
    `domain_gpus`: how many share one scale-up domain at the most; `node_gpus`: in its
    usual node. `fabric`: what usually connects its nodes. `architecture`: whose kernels
    it runs. `bridge`: what may join `bridge_gpus` of them alongside `scale_up`, where
    one has been put it in."""

    name: str
    title: str
    vendor: str
    architecture: str
    memory_bytes: float
    memory_bytes_per_s: float
    flops: Mapping[Precision, float]
    tdp_watts: float
    # streaming multiprocessors, compute units: what runs tiles side by side
    processors: int
    scale_up: LinkKind
    domain_gpus: int
    node_gpus: int
    fabric: LinkKind
    bridge: LinkKind | None = None
    bridge_gpus: int = 0

    @property
    def chip(self) -> str:
        """The chip of all its boards: "a100" of each A100."""
        return self.name.split("-")[0]


def aliases() -> dict[str, str]:
    """Other names of devices, their titles among them, to their own."""
    return {
        alias.strip(): name
        for name, facts in table("devices").items()
        for alias in (*facts["aliases"].value.split(";"), facts["title"].value)
    }


@cache
def device(name: str) -> Device:
    """The device of that name: h100-sxm, H100, "H100 SXM 80GB", or as its driver prints
    it, "NVIDIA H100 80GB HBM3".

    Raises: NotFound, with the nearest name.
    """
    facts = subject("GPU", name, table("devices"), aliases(), spelled, listed="gpus")
    return Device(
        name=facts["title"].subject,
        title=facts["title"].value,
        vendor=facts["vendor"].value,
        architecture=facts["architecture"].value,
        memory_bytes=facts["memory"].number * 1e9,
        memory_bytes_per_s=facts["memory_bandwidth"].number * 1e9,
        flops=_flops_by_precision(facts),
        tdp_watts=facts["tdp"].number,
        processors=round(facts["processors"].number),
        scale_up=link(facts["scale_up"].value),
        domain_gpus=round(facts["domain_gpus"].number),
        node_gpus=round(facts["node_gpus"].number),
        fabric=link(facts["fabric"].value),
        bridge=link(facts["bridge"].value) if "bridge" in facts else None,
        bridge_gpus=round(facts["bridge_gpus"].number) if "bridge" in facts else 0,
    )


def devices() -> tuple[Device, ...]:
    """All of them, in the order of the file."""
    return tuple(device(name) for name in table("devices"))


def spelled(name: str) -> str:
    """A name without what its writers do differently: vendor, memory's kind, power
    limit."""
    name_words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(
        SOCKETS.get(name_word, name_word)
        for name_word in name_words
        if not SILENT.fullmatch(name_word)
    )


def _flops_by_precision(facts: Mapping[str, Fact]) -> dict[Precision, float]:
    quantity_names = {precision: f"{precision}_dense" for precision in Precision}
    return {
        precision: facts[quantity].number * 1e12
        for precision, quantity in quantity_names.items()
        if quantity in facts
    }
