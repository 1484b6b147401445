"""What is held now costs by the hour what its node or the catalog says, and nothing
where nobody knows."""

from dataclasses import replace

from corral.domain.node import Node
from corral.insight.open_accounts import HourlyMoney, hourly_money
from tests.worlds import Cluster, gang, node


def priced(name: str, kind: str, price: str) -> Node:
    one = node(name, gpus=2, kind=kind)
    return replace(one, inventory=replace(one.inventory, labels=(("price", price),)))


def test_what_is_held_costs_what_its_node_says_and_what_has_no_price_is_counted() -> (
    None
):
    cluster = Cluster(priced("a", "h100", "2.5"))
    assert hourly_money(cluster.world) == HourlyMoney()
    cluster.submit(gang("two", gpus=2))
    cluster.tick()
    assert hourly_money(cluster.world) == HourlyMoney(own=5.0)
    odd = Cluster(node("b", gpus=2, kind="homemade"))
    odd.submit(gang("one"))
    odd.tick()
    assert hourly_money(odd.world) == HourlyMoney(unpriced_gpus=1.0)


def test_what_has_list_prices_alone_is_summed_apart() -> None:
    both = Cluster(priced("a", "h100", "2.5"), node("b", gpus=2, kind="h100"))
    both.submit(gang("all", gpus=2, nodes=2))
    both.tick()
    found = hourly_money(both.world)
    assert found.own == 5.0
    assert found.listed > 1.0
    assert found.unpriced_gpus == 0.0
