"""Computing devices, GPUs and TPUs, with values from data sheets and from measurements."""

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
    """One kind of GPU. Rates are dense, that is without sparsity, as on the data sheet.

    `flops`: rate by precision; a multiply and an add count as 2. A precision that the
    GPU lacks is missing. `domain_gpus`: highest number of GPUs in one scale-up domain;
    `node_gpus`: number in its usual node. `fabric`: the usual network between its
    nodes. `architecture`: the architecture whose kernels it runs. `bridge`: a link that
    may join `bridge_gpus` of these GPUs in addition to `scale_up`, if one has been
    installed.
    """

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
        """Return the chip, which all its boards have in common: "a100" for each A100."""
        return self.name.split("-")[0]


def aliases() -> dict[str, str]:
    """Map the other names of devices, including their titles, to the catalog's names."""
    return {
        alias.strip(): name
        for name, facts in table("devices").items()
        for alias in (*facts["aliases"].value.split(";"), facts["title"].value)
    }


@cache
def device(name: str) -> Device:
    """Return the device of that name: h100-sxm, H100, "H100 SXM 80GB", or "NVIDIA H100
    80GB HBM3", as its driver prints it.

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
    """Return all devices, in the order of the file."""
    return tuple(device(name) for name in table("devices"))


def spelled(name: str) -> str:
    """Return a device name without the parts that differ between writers: vendor, kind
    of memory, power limit."""
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
