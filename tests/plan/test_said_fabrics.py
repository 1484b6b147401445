"""What joins nodes, as people say it."""

import pytest

from corral.catalog.devices import devices
from corral.domain.errors import NotFound, SpecInvalid
from corral.plan.said import fabric_said


@pytest.mark.parametrize("name", sorted({one.fabric.name for one in devices()} | {"efa-p5"}))
def test_every_fabric_of_the_catalog_joins_nodes(name: str) -> None:
    assert fabric_said(name.upper()).name == name


@pytest.mark.parametrize(
    "name", ["nvlink", "nvlink-4", "NVLink-5", "nvl72", "pcie-5", "xgmi", "ici"]
)
def test_what_is_inside_of_a_node_joins_none(name: str) -> None:
    with pytest.raises(SpecInvalid, match="is inside of nodes") as refused:
        fabric_said(name)
    assert "ib-ndr" in refused.value.hint


@pytest.mark.parametrize(("name", "near"), [("ib-ndrr", "ib-ndr"), ("roce", "roce-800"), ("", "")])
def test_a_misspelt_fabric_gets_the_nearest(name: str, near: str) -> None:
    with pytest.raises(NotFound) as refused:
        fabric_said(name)
    assert near in refused.value.hint
