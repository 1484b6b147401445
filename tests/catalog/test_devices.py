"""Each device of the catalog, and every spelling of it that a measured table has."""

import csv
import gzip
from pathlib import Path

import pytest

from corral.catalog.devices import Device, aliases, device, devices
from corral.catalog.precisions import Precision
from corral.domain.errors import NotFound

DATA = Path(__file__).parents[2] / "validation" / "data"
KINDS = (
    "training",
    "inference",
    "collectives",
    "gemm",
    "memory_ci",
    "prices",
    "failures",
)
AMBIGUOUS = {  # a spelling of the tables that names no one device, and why
    "": "not told",
    "mixed": "several",
    "not stated": "not told",
    "not stated (4 nodes of 8)": "not told",
    "H100 NVL/PCIe (pairwise)": "either of two parts, which differ",
    "SM90 (H800/H100)": "either of two parts, whose NVLink differs",
    "H100/A100/L40S": "a cluster of three kinds",
    "H100/B200/GB200": "three kinds",
}


def spellings() -> list[str]:
    seen: set[str] = set()
    for kind in KINDS:
        with gzip.open(DATA / f"{kind}.csv.gz", "rt", encoding="utf-8") as file:
            seen |= {row["gpu"] for row in csv.DictReader(file)}
    return sorted(seen)


@pytest.mark.parametrize("spelling", spellings())
def test_each_spelling_of_the_tables_is_a_device_or_told_to_be_ambiguous(
    spelling: str,
) -> None:
    if spelling in AMBIGUOUS:
        with pytest.raises(NotFound):
            device(spelling)
    else:
        assert device(spelling).memory_bytes > 0


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA GH200 480GB", "gh200-96"),
        ("NVIDIA GH200 144G HBM3e", "gh200-144"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx-3080-ti"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("Tesla V100-SXM2-16GB", "v100-sxm-16"),
        ("Tesla V100-SXM2-32GB", "v100-sxm-32"),
        ("Tesla V100-SXM3-32GB", "v100-sxm3-32"),
        ("Tesla T4", "t4"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("AMD Instinct MI250X", "mi250x"),
        ("MI250X (GCD)", "mi250x-gcd"),
        ("8x NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("DGX H100", "h100-sxm"),
        ("NVIDIA GeForce RTX 5080", "rtx-5080"),
        ("Tesla P100-SXM2-16GB", "p100-sxm"),
        ("Quadro RTX 8000", "rtx-8000"),
        ("NVIDIA GB10", "gb10"),
        ("Intel Data Center GPU Max 1550", "max-1550"),
        ("AWS Trainium", "trainium-1"),
    ],
)
def test_what_a_driver_prints_is_its_device(printed: str, name: str) -> None:
    assert device(printed).name == name


def test_no_alias_is_the_name_of_another() -> None:
    for alias, own in aliases().items():
        assert device(alias).name == own
    for one in devices():
        assert device(one.name).name == one.name


@pytest.mark.parametrize("one", devices(), ids=lambda one: str(one.name))
def test_the_units_of_a_device_are_plausible(one: Device) -> None:
    widest = one.flops.get(Precision.BF16) or one.flops[Precision.FP16]
    assert 2e12 <= widest <= 3e15
    # as much as an M3 Ultra shares with its processor
    assert 8e9 <= one.memory_bytes <= 520e9
    assert 60e9 <= one.memory_bytes_per_s <= 10e12
    assert 30 <= one.tdp_watts <= 1500
    assert 1 <= one.processors <= 400
    assert 1 <= one.node_gpus <= 16
    assert one.domain_gpus >= 1
    assert one.scale_up.bytes_per_s > 0
    assert one.fabric.bytes_per_s > 0


@pytest.mark.parametrize("one", devices(), ids=lambda one: str(one.name))
def test_a_narrower_form_is_never_slower(one: Device) -> None:
    order = (
        Precision.FP32,
        Precision.TF32,
        Precision.FP16,
        Precision.FP8,
        Precision.FP4,
    )
    rates = [one.flops[form] for form in order if form in one.flops]
    assert rates == sorted(rates)


@pytest.mark.parametrize("one", devices(), ids=lambda one: str(one.name))
def test_a_bridge_joins_at_least_two(one: Device) -> None:
    assert (one.bridge is None) == (one.bridge_gpus == 0)
    assert one.bridge_gpus != 1


@pytest.mark.parametrize(
    ("name", "form", "tflops"),
    [
        ("a10g", Precision.BF16, 70),  # not 125, which is the A10's
        ("a10", Precision.BF16, 125),
        ("h100-pcie", Precision.BF16, 756),  # not 989, which is the SXM part's
        ("h100-sxm", Precision.BF16, 989),
        ("h100-nvl", Precision.BF16, 835),
        ("l4", Precision.BF16, 121),  # the data sheet prints 242, with sparsity
        ("gb200", Precision.FP8, 5000),  # 10,000 with sparsity, 20,000 of a superchip
        ("gb200", Precision.BF16, 2500),
        ("b300", Precision.FP4, 13125),
        ("mi300x", Precision.BF16, 1307.4),
        # not 1835, which the first white paper printed
        ("gaudi-3", Precision.BF16, 1678),
        ("mi100", Precision.BF16, 92.3),  # half of its fp16
    ],
)
def test_where_sheets_disagree_the_dense_rate_of_the_vendor_stands(
    name: str, form: Precision, tflops: float
) -> None:
    assert device(name).flops[form] == pytest.approx(tflops * 1e12)


PRINTED = {
    "bf16_dense_tflops": lambda one: one.flops.get(Precision.BF16, 0.0) / 1e12,
    "fp8_dense_tflops": lambda one: one.flops.get(Precision.FP8, 0.0) / 1e12,
    "memory_bw_GBps": lambda one: one.memory_bytes_per_s / 1e9,
    "tdp_w": lambda one: one.tdp_watts,
}
# where the sources beside each other disagree, and which one the catalog has
CONFLICTS = {
    ("b200", "memory_bw_GBps"): "7.7 TB/s a GPU of an HGX B200; 8.0 is that of a GB200",
    ("b300", "memory_bw_GBps"): "8.0 TB/s; one table has 7.75",
    ("b300", "tdp_w"): "1,100 W; one table has 1,000",
    ("gh200-96", "memory_bw_GBps"): "4.0 TB/s of HBM3; 4.8 is that of the 144 GB part",
    ("mi100", "bf16_dense_tflops"): "92.3; one table has the rate of fp16",
    (
        "rtx-pro-6000",
        "memory_bw_GBps",
    ): "1,597 GB/s of the Server Edition; 1,792 of the others",
}


def printed() -> list[tuple[str, str, float]]:
    """Device, column and number of each cell of the collected data sheets."""
    found = []
    with gzip.open(DATA / "gpus.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name = row["gpu"].split(" (")[0].replace("_", " ")
            for column in PRINTED if known(name) else ():
                if row[column].replace(".", "", 1).isdigit():
                    found.append((known(name), column, float(row[column])))
    return found


def known(name: str) -> str:
    try:
        return device(name).name
    except NotFound:
        return ""


def test_each_rate_is_that_of_the_collected_data_sheets_or_a_conflict_that_is_told() -> (
    None
):
    cells = printed()
    assert len(cells) > 100
    off = {
        (name, column)
        for name, column, told in cells
        if (own := PRINTED[column](device(name))) and abs(own / told - 1) > 0.03
    }
    assert off == CONFLICTS.keys()
