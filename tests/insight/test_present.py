"""What is held now costs by the hour what its node or the catalog says, and nothing where nobody
knows."""

from dataclasses import replace

import pytest

from corral.domain.node import Node
from corral.insight.present import hourly_money
from tests.worlds import Cluster, gang, node


def priced(name: str, kind: str, price: str) -> Node:
    one = node(name, gpus=2, kind=kind)
    return replace(one, inventory=replace(one.inventory, labels=(("price", price),)))


def test_what_is_held_costs_what_its_node_says_and_what_has_no_price_is_counted() -> None:
    cluster = Cluster(priced("a", "h100", "2.5"))
    assert hourly_money(cluster.world) == (0.0, 0.0)
    cluster.submit(gang("two", gpus=2))
    cluster.tick()
    assert hourly_money(cluster.world) == (5.0, 0.0)
    odd = Cluster(node("b", gpus=2, kind="homemade"))
    odd.submit(gang("one"))
    odd.tick()
    assert hourly_money(odd.world) == pytest.approx((0.0, 1.0))
