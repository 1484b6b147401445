"""Rows of the collectives table, and the links in them as people write them."""

import csv
import gzip
from pathlib import Path

import pytest

from corral.plan.parse.links import said_across, said_between_nodes, said_inside
from corral.plan.rows.collectives import place_of, predict
from corral.plan.rows.measures import MEASURES, collective_us
from corral.plan.rows.prediction_errors import errors_of, hold
from corral.plan.rows.row import Row, RowRefused

TABLE = Path(__file__).parents[2] / "validation" / "data" / "collectives.csv.gz"
NODE: Row = {
    "collective": "all_reduce",
    "gpu": "H100 SXM 80GB",
    "n_gpus": "8",
    "nodes": "1",
    "size_bytes": "1e9",
}


@pytest.mark.parametrize(
    ("text", "name", "rate"),
    [
        ("NVLink4 450 GB/s per direction", "nvlink-4", 450e9),
        ("NVLink3 NVSwitch", "nvlink-3", 300e9),
        ("NVLink 5 1800 GB/s bidirectional", "nvlink-5", 900e9),
        ("NVLink 3.0, 600 GB/s", "nvlink-3", 300e9),
        ("NVLink 4, 25 GB/s a lane", "nvlink-4", 450e9),
        (
            "NVLink2 hybrid cube mesh (no NVSwitch), 150 GB/s per direction",
            "nvlink-2",
            150e9,
        ),
        ("PCIe 4.0 x16 (32 GB/s)", "pcie-4", 32e9),
        ("PCIe gen5", "pcie-5", 63e9),
    ],
)
def test_a_link_inside_of_a_node_is_read(text: str, name: str, rate: float) -> None:
    found = said_inside(text)
    assert found is not None
    assert found.name == name
    assert found.bytes_per_s == pytest.approx(rate)


@pytest.mark.parametrize(
    ("text", "name", "rate"),
    [
        ("AWS EFA 32x100 Gb/s per node (p5)", "efa-p5", 50e9),  # 32 x 12.5 over 8 GPUs
        ("AWS EFA 4x100 Gb/s per node (p4de)", "efa-p4d", 6.25e9),
        ("AWS EFA v3 16x200 Gb/s per node", "efa-p5en", 50e9),
        ("8x 400 Gb/s RoCE per node", "roce-400", 50e9),
        ("4x HDR 200 Gb/s per node", "ib-hdr", 12.5e9),
        ("CX7 400 Gb/s InfiniBand", "ib-ndr", 50e9),
        ("InfiniBand NDR", "ib-ndr", 50e9),
        ("8 x ConnectX-6 200Gb/s per node", "ib-hdr", 25e9),
        ("EFA, 3.2 Tbps per node", "efa-p5", 50e9),
        ("InfiniBand HDR, 100 GB/s per node", "ib-hdr", 12.5e9),
        ("RoCE 400 Gb/s per GPU", "roce-400", 50e9),
        ("2 HCAs, HDR 200 Gb/s", "ib-hdr", 6.25e9),
    ],
)
def test_a_network_between_nodes_is_read(text: str, name: str, rate: float) -> None:
    found = said_across(text, node_gpus=8)
    assert found is not None
    assert found.name == name
    assert found.bytes_per_s == pytest.approx(rate)


def test_what_names_no_link_is_none() -> None:
    assert said_inside("") is None
    assert said_inside("NVLink") is None
    assert said_across("none", node_gpus=8) is None
    assert said_between_nodes("not stated (measured about 8 GB/s per pair)") == 8e9
    assert said_between_nodes("8x 400 Gb/s RoCE per node") is None


def test_an_empty_cell_takes_what_is_usual_and_tells_it() -> None:
    place = place_of({**NODE, "n_gpus": "16", "nodes": ""})
    assert (place.group.size, place.group.per_domain) == (16, 8)
    assert [told.split(":")[0] for told in place.remarks] == [
        "nodes",
        "intra_link",
        "inter_link",
    ]


def test_the_rate_of_an_adapter_goes_before_the_text() -> None:
    row = {
        **NODE,
        "n_gpus": "16",
        "nodes": "2",
        "inter_link": "8x 400 Gb/s RoCE per node",
    }
    assert place_of(row).wires.fabric.bytes_per_s == 50e9
    assert place_of({**row, "nic_GBps_per_gpu": "25"}).wires.fabric.bytes_per_s == 25e9


@pytest.mark.parametrize(
    ("gpu", "rate", "of_each"), [("H100", "36", 36e9), ("A100", "8", 1e9)]
)
def test_a_rate_that_one_pair_had_is_each_gpus_or_the_nodes(
    gpu: str, rate: str, of_each: float
) -> None:
    """36 of 50 GB/s are one adapter's; 8 of 25 are of a network that 8 GPUs share."""
    text = f"not stated (measured about {rate} GB/s per pair)"
    row = {**NODE, "gpu": gpu, "n_gpus": "16", "nodes": "2", "inter_link": text}
    assert place_of(row).wires.fabric.bytes_per_s == of_each


def test_bridged_pairs_speak_over_pcie() -> None:
    place = place_of(
        {
            **NODE,
            "gpu": "A100 PCIe 80GB",
            "n_gpus": "4",
            "intra_link": "NVLink bridge pairs",
        }
    )
    assert (place.group.per_domain, place.wires.fabric.name) == (2, "pcie-4")


def test_a_forced_algorithm_is_taken() -> None:
    ring = predict({**NODE, "algo": "Ring (NVLS off)"}).values["pred_time_us"]
    switch = predict({**NODE, "algo": "NVLS"}).values["pred_time_us"]
    chosen = predict(NODE).values["pred_time_us"]
    assert chosen == switch < ring


def test_a_small_message_through_torch_waits_for_its_host() -> None:
    """8 x H200, 64 KiB: 39 us by torch (ml-engineering), 19 us by nccl-tests
    (aiconfigurator)."""
    small = {**NODE, "size_bytes": "65536"}
    bare = predict({**small, "library": "NCCL 2.27.7"}).values["pred_time_us"]
    torch = predict({**small, "library": "NCCL 2.27.7 (torch 2.9.1)"}).values[
        "pred_time_us"
    ]
    assert bare < 22
    assert torch == pytest.approx(39, rel=0.1)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"collective": "shuffle"}, "not a known collective"),
        ({"size_bytes": "", "collective": "moe_alltoall dispatch"}, "size"),
        ({"gpu": "not stated"}, "neither the GPU"),
        ({"n_gpus": "12", "nodes": "5"}, "evenly"),
        ({"n_gpus": ""}, "number of GPUs"),
        ({"gpu": "", "intra_link": "NVLink bridge pairs"}, "bridge"),
    ],
)
def test_a_row_that_cannot_be_predicted_is_refused_with_the_reason(
    cells: dict[str, str], reason: str
) -> None:
    with pytest.raises(RowRefused, match=reason):
        predict({**NODE, **cells})


def test_tokens_that_go_to_experts_tell_the_size() -> None:
    # 128 tokens x 8 experts x 7,168 numbers: 7,340,032 bytes there in fp8, twice as
    # many back
    for way, size in (("dispatch", "7340032"), ("combine", "14680064")):
        row = {**NODE, "collective": f"moe_alltoall {way}", "size_bytes": ""}
        for notes in (
            "hidden 7168, tokens 128, topk 8",
            "over RDMA; hidden 7168, top-8, 128 tokens",
        ):
            found = predict({**row, "notes": notes})
            assert found.values == predict({**row, "size_bytes": size}).values
            assert "128 tokens of 7168 numbers, each to 8 experts" in found.remarks


def test_a_size_that_nobody_says_is_a_large_one_and_told() -> None:
    found = predict({**NODE, "size_bytes": ""})
    assert "a buffer of 1 GiB" in found.remarks
    assert found.values == predict({**NODE, "size_bytes": str(2**30)}).values


def test_deepseeks_exchange_of_tokens_is_met_as_measured() -> None:
    with gzip.open(TABLE, "rt", encoding="utf-8") as file:
        rows: list[Row] = [
            row for row in csv.DictReader(file) if "DeepEP" in row["library"]
        ]
    errors = errors_of(hold(rows, predict, MEASURES["collectives"]).pairs["time"])
    assert errors is not None
    assert errors.rows >= 60
    assert errors.mean < 0.12


def test_measured_rows_of_16_mib_and_more_are_met() -> None:
    """Reached when this was written: 3.6 % in one node, 18 % across nodes."""
    with gzip.open(TABLE, "rt", encoding="utf-8") as lines:
        rows = [
            row
            for row in csv.DictReader(lines)
            if row["collective"] in ("all_reduce", "all_gather", "reduce_scatter")
            and float(row["size_bytes"] or 0) >= 2**24
            and collective_us(row)
        ]
    assert len(rows) > 600
    for is_one_node, bound in ((True, 0.05), (False, 0.20)):
        some = [row for row in rows if (row["nodes"] == "1") == is_one_node]
        errors = errors_of(hold(some, predict, MEASURES["collectives"]).pairs["time"])
        assert errors is not None
        assert errors.mean < bound


def test_a_rack_is_one_domain_over_its_nodes() -> None:
    row = {
        "collective": "all_reduce",
        "gpu": "GB200",
        "n_gpus": "64",
        "size_bytes": str(2**30),
    }
    over_nodes = place_of({**row, "nodes": "16", "gpus_per_node": "4"})
    assert (over_nodes.group.size, over_nodes.group.per_domain) == (64, 64)
    two_racks = place_of({**row, "n_gpus": "144", "nodes": "36", "gpus_per_node": "4"})
    assert two_racks.group.per_domain == 72
    apart = place_of({**row, "nodes": "16", "inter_link": "400 Gb/s InfiniBand NDR"})
    assert apart.group.per_domain == 4
    seconds = predict({**row, "nodes": "16"}).values["pred_time_us"] / 1e6
    rate = 2**30 / seconds * 2 * 63 / 64 / 1e9
    assert 400 < rate < 900, "the links of a rack, not adapters"
