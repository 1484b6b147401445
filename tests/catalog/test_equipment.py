"""Servers, switches and networks to be bought."""

import pytest

from corral.catalog.devices import device, devices
from corral.catalog.equipment import network, networks, server, switch
from corral.domain.errors import NotFound


@pytest.mark.parametrize("name", networks())
def test_each_network_has_a_switch_that_takes_its_adapters(name: str) -> None:
    found = network(name)
    assert found.switch.ports_of(found.adapter_gbps) >= found.switch.ports


def test_a_port_is_split_for_slower_links() -> None:
    sn5600 = switch("SN5600")
    assert sn5600.ports_of(800) == 64
    assert sn5600.ports_of(400) == 128
    assert sn5600.ports_of(1600) == 0
    assert switch("qm9700").ports_of(400) == 64


def test_each_gpu_is_bought_in_a_server_that_draws_more_than_its_gpus() -> None:
    for one in devices():
        built = server(one)
        assert built.gpus % one.node_gpus == 0
        assert built.watts > built.gpus * one.tdp_watts


def test_a_server_that_is_not_known_is_sized_by_its_gpus() -> None:
    """8 x 750 W x 1.82 = 10.9 kW."""
    assert server(device("mi300x")).watts == pytest.approx(10_920)
    assert server(device("h100")).watts == 10_200
    assert server(device("gb200")).gpus == 72


def test_a_misspelt_switch_gets_the_nearest_name() -> None:
    with pytest.raises(NotFound) as refused:
        switch("qm9800")
    assert "qm9700" in refused.value.hint
