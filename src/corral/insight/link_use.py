"""How much the GPUs of a job use their links, from their counters and the catalog."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from corral.catalog.devices import device
from corral.catalog.links import link
from corral.domain.errors import NotFound
from corral.domain.telemetry import GpuSample

LANES: Final = 16  # of the links in the catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """Use of one kind of link, as the median over the GPUs. `bytes_per_s` is the
    traffic in the busier direction, and `most_bytes_per_s` the rate in the catalog."""

    name: str
    bytes_per_s: float
    most_bytes_per_s: float

    @property
    def share(self) -> float:
        return self.bytes_per_s / self.most_bytes_per_s


def link_use(gpus: Iterable[GpuSample]) -> LinkUse | None:
    """Return the use of NVLinks or PCIe, whichever is closer to its maximum rate; None
    without a counter or a known rate."""
    gpu_samples = list(gpus)
    kinds = [
        _median_link_use("NVLinks", [_of_nvlinks(gpu) for gpu in gpu_samples]),
        _median_link_use("PCIe links", [_of_pcie(gpu) for gpu in gpu_samples]),
    ]
    return max(
        (kind for kind in kinds if kind is not None),
        key=lambda one: one.share,
        default=None,
    )


Used = tuple[float, float] | None  # bytes a second, and the most


def _median_link_use(name: str, uses: Iterable[Used]) -> LinkUse | None:
    known_uses = [use for use in uses if use is not None]
    if not known_uses:
        return None
    max_bytes_per_s = median(limit_bytes_per_s for _, limit_bytes_per_s in known_uses)
    return LinkUse(
        name=name,
        bytes_per_s=median(used_bytes_per_s for used_bytes_per_s, _ in known_uses),
        most_bytes_per_s=max_bytes_per_s,
    )


def _of_nvlinks(gpu: GpuSample) -> Used:
    sent_bytes_per_s, received = (
        gpu.nvlink_sent_bytes_per_second,
        gpu.nvlink_received_bytes_per_second,
    )
    try:
        kind = device(gpu.type)
    except NotFound:
        return None
    wire = kind.bridge or kind.scale_up
    if (
        sent_bytes_per_s is None
        or received is None
        or not wire.name.startswith("nvlink")
    ):
        return None
    return max(sent_bytes_per_s, received), wire.bytes_per_s


def _of_pcie(gpu: GpuSample) -> Used:
    """Return the GPU's PCIe traffic and the most that its current generation and lanes
    allow; None if unknown."""
    sent_bytes_per_s, received = (
        gpu.pcie_sent_bytes_per_second,
        gpu.pcie_received_bytes_per_second,
    )
    if (
        sent_bytes_per_s is None
        or received is None
        or not gpu.pcie_generation
        or not gpu.pcie_width
    ):
        return None
    try:
        max_bytes_per_s = (
            link(f"pcie-{gpu.pcie_generation}").bytes_per_s * gpu.pcie_width / LANES
        )
    except NotFound:
        return None
    return max(sent_bytes_per_s, received), max_bytes_per_s
