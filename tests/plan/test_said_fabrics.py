"""What joins nodes, as people say it."""

import pytest

from corral.catalog.devices import device, devices
from corral.domain.errors import NotFound, SpecInvalid
from corral.plan.parse.fabrics import fabric_said


@pytest.mark.parametrize(
    "name", sorted({one.fabric.name for one in devices()} | {"efa-p5"})
)
def test_every_fabric_of_the_catalog_joins_nodes(name: str) -> None:
    assert fabric_said(name.upper()).name == name


@pytest.mark.parametrize(
    "name", ["nvlink", "nvlink-4", "NVLink-5", "nvl72", "pcie-5", "xgmi", "ici"]
)
def test_what_is_inside_of_a_node_joins_none(name: str) -> None:
    with pytest.raises(SpecInvalid, match="is a link inside of nodes") as refused:
        fabric_said(name)
    assert "ib-ndr" in refused.value.hint


@pytest.mark.parametrize(
    ("name", "near"), [("ib-ndrr", "ib-ndr"), ("roce", "roce-800"), ("", "")]
)
def test_a_misspelt_fabric_gets_the_nearest(name: str, near: str) -> None:
    with pytest.raises(NotFound) as refused:
        fabric_said(name)
    assert near in refused.value.hint


@pytest.mark.parametrize(
    ("text", "name", "gigabytes"),
    [
        ("280 Gb/s", "ib-ndr", 35.0),
        ("280 Gb/s infiniband", "ib-ndr", 35.0),
        ("280Gbps InfiniBand", "ib-ndr", 35.0),
        ("100 Gb/s ethernet", "ethernet-100", 12.5),
        ("1.6 Tb/s per node ndr", "ib-ndr", 25.0),
        ("200 Gb/s spectrum-x", "roce-200", 25.0),
        ("25 GB/s roce", "roce-400", 25.0),
    ],
)
def test_any_bandwidth_can_be_asked_for(text: str, name: str, gigabytes: float) -> None:
    found = fabric_said(text, device("h100-sxm"))
    assert found.name == name
    assert found.bytes_per_s == pytest.approx(gigabytes * 1e9)
    assert f"{gigabytes * 8:g} Gb/s a GPU" in found.title


@pytest.mark.parametrize(
    ("text", "gpu", "name"),
    [
        ("spectrum-x", "h100-sxm", "roce-400"),
        ("Spectrum X", "h100-sxm", "roce-400"),
        ("iwarp", "h100-sxm", "roce-100"),
        ("efa", "h100-sxm", "efa-p5"),
        ("EFA", "h200-sxm", "efa-p5en"),
        ("efa", "a100-sxm-80", "efa-p4d"),
        ("efa", "b200", "efa-p6"),
    ],
)
def test_names_that_people_use_are_understood(text: str, gpu: str, name: str) -> None:
    assert fabric_said(text, device(gpu)).name == name


@pytest.mark.parametrize("text", ["0 Gb/s", "0.0001 Gb/s roce", "999999 Tb/s"])
def test_a_rate_that_no_network_has_is_refused(text: str) -> None:
    with pytest.raises(SpecInvalid, match="not a possible rate"):
        fabric_said(text)
