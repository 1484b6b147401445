"""What links carry is held against what they can: by their kind, generation and
lanes."""

from dataclasses import replace

import pytest

from corral.domain.telemetry import GpuSample
from corral.insight.link_use import link_use

GPU = GpuSample(
    index=0,
    uuid="GPU-0",
    type="h100",
    pcie_generation=4,
    pcie_width=8,
    pcie_sent_bytes_per_second=1e9,
    pcie_received_bytes_per_second=12.6e9,
)


def test_pcie_is_by_the_generation_and_the_lanes_in_use_and_the_busier_direction() -> (
    None
):
    found = link_use([GPU])
    assert found is not None
    assert found.name == "PCIe links"
    assert found.share == pytest.approx(12.6 / (31.5 / 2))


def test_the_kind_that_is_nearer_to_its_rate_is_told_in_the_middle_of_the_gpus() -> (
    None
):
    busy = replace(
        GPU, nvlink_sent_bytes_per_second=4.4e11, nvlink_received_bytes_per_second=0.0
    )
    idle = replace(busy, nvlink_sent_bytes_per_second=0.0)
    found = link_use([busy, busy, idle])
    assert found is not None
    assert (found.name, found.most_bytes_per_s) == ("NVLinks", 450e9)
    other = link_use([busy, idle, idle])
    assert other is not None
    assert other.name == "PCIe links"


@pytest.mark.parametrize(
    "gpu",
    [
        replace(GPU, pcie_received_bytes_per_second=None),
        replace(GPU, pcie_generation=None),
        replace(GPU, pcie_generation=99),
        replace(
            GPU, type="nobody knows", pcie_width=None, nvlink_sent_bytes_per_second=1.0,
            nvlink_received_bytes_per_second=1.0,
        ),
    ],
)  # fmt: skip
def test_without_a_counter_or_a_rate_nothing_is_told(gpu: GpuSample) -> None:
    assert link_use([gpu]) is None
