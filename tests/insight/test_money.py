"""What an hour of a GPU costs, by whoever knows it best."""

import pytest

from corral.domain.ids import QueueName
from corral.domain.queue import Budget, Queue
from corral.insight.gpu_prices import Price, hourly


def queue(name: str, rate: float | None) -> Queue:
    budget = None if rate is None else Budget(money=1e6, rates=(("h100", rate),))
    return Queue(name=QueueName(name), budget=budget)


@pytest.mark.parametrize(
    ("own", "price"),
    [(2.0, 2.0), (None, 5.0)],
)
def test_of_queues_with_rates_the_nearest_counts(
    own: float | None, price: float
) -> None:
    path = [queue("all", 9.0), queue("team", 5.0), queue("own", own)]
    assert hourly({}, "h100", path) == Price(price)


@pytest.mark.parametrize(
    ("label", "price"), [("3.5", 3.5), ("0", 0.0), ("-1", 5.0), ("much", 5.0)]
)
def test_a_nodes_own_price_comes_first_where_it_is_one(
    label: str, price: float
) -> None:
    assert hourly({"price": label}, "h100", [queue("team", 5.0)]) == Price(price)


def test_of_a_type_that_nobody_knows_there_is_no_price() -> None:
    assert hourly({}, "abacus", []) is None


def test_the_price_of_clouds_is_one_of_its_own_kind() -> None:
    price = hourly({}, "h100", [queue("team", None)])
    assert price is not None
    assert price.is_list
    assert (price.own, price.listed) == (0.0, price.amount)
    assert Price(2.0).listed == 0.0
