"""How a library fares over a link, by the link's family."""

import pytest

from corral.catalog.links import links
from corral.catalog.transports import transport


@pytest.mark.parametrize("name", [one.name for one in links()])
def test_each_link_has_a_transport_within_its_rate(name: str) -> None:
    carries = transport(name)
    for protocol in (carries.bulk, carries.low):
        assert 0 < protocol.efficiency <= 1
        assert min(protocol.launch_s, protocol.hop_s, protocol.fill_s) > 0
    assert 0 < carries.pair_efficiency <= 1


def test_a_link_takes_from_its_family_what_it_does_not_say() -> None:
    assert transport("nvlink-4-400") == transport("nvlink-4")
    assert transport("nvlink-4") != transport("nvlink-3")
    assert transport("a link of tomorrow") == transport("any")
