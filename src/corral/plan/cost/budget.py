"""Reach of a budget: the GPUs that it can buy, the GPUs that it can both buy and run,
and those that it can rent."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf

from corral.plan.cost.bills import MONTH_HOURS, Bill, PriceAssumptions
from corral.plan.cost.terms import rented_months


@dataclass(frozen=True, slots=True, kw_only=True)
class AffordableGpus:
    """GPUs that a budget buys or rents.

    `by_capital`: the GPUs, in whole nodes, whose purchase the budget pays.
    `by_whole_cost`: the GPUs whose total cost over the years it pays. `months`: how
    long the budget can run the GPUs of `by_capital`, up to the requested years.
    `node_once` and `node_usd`: the initial and the total cost of one node of
    `node_gpus`.

    `rented_hours`: GPU-hours on demand, counting rent alone. `rented_gpus`: those hours
    as a number of GPUs around the clock. `rented_months`: how long the budget rents the
    requested GPUs. `people_usd`: the cost of people over the years of a rent,
    independent of the number of GPUs. `kept_gpus` and `kept_on_spot`: the GPUs on
    demand and on spot that can be rented for all years at the requested use, with
    storage and people.
    """

    by_capital: int
    by_whole_cost: int
    months: int
    node_gpus: int
    node_once: float
    node_usd: float
    rented_hours: float
    rented_gpus: float
    rented_months: int
    people_usd: float
    kept_gpus: float
    kept_on_spot: float


def bought(
    prices: PriceAssumptions, budget_usd: float, used: float, gpus: float
) -> AffordableGpus:
    """Return how many GPUs the budget buys, in whole nodes, and how many it rents. The
    purchase is counted in two ways: the initial payment alone, and all costs over the
    years."""
    node = prices.node_gpus

    def most(cost: Callable[[Bill], float]) -> int:
        lower_nodes, upper_nodes = (
            0,
            ceil(budget_usd / max(1.0, prices.of["server_per_gpu"] * node)) + 1,
        )
        while upper_nodes - lower_nodes > 1:
            middle = (lower_nodes + upper_nodes) // 2
            fits = cost(prices.own(middle * node, used)) <= budget_usd
            lower_nodes, upper_nodes = (
                (middle, upper_nodes) if fits else (lower_nodes, middle)
            )
        return lower_nodes * node

    hours = budget_usd / prices.of["on_demand"] if prices.of["on_demand"] else inf
    by_capital = most(lambda bill: bill.once)
    node_bill = prices.own(node, used)
    return AffordableGpus(
        by_capital=by_capital,
        by_whole_cost=most(lambda bill: bill.spent),
        months=_affordable_months(prices, prices.own(by_capital, used), budget_usd),
        node_gpus=node,
        node_once=node_bill.once,
        node_usd=node_bill.spent,
        rented_hours=hours,
        rented_gpus=hours / (prices.months * MONTH_HOURS),
        rented_months=rented_months(prices, gpus, used, budget_usd),
        people_usd=_fixed_rent_cost(prices, used),
        kept_gpus=_affordable_rent_gpus(prices, budget_usd, used, "on demand"),
        kept_on_spot=_affordable_rent_gpus(prices, budget_usd, used, "spot"),
    )


def _affordable_months(prices: PriceAssumptions, bill: Bill, budget_usd: float) -> int:
    """Return the whole months for which the budget pays the bill, at most the requested
    years."""
    monthly = sum(line.monthly for line in bill.lines)
    paid = bill.once
    for month in range(1, prices.months + 1):
        paid += monthly * prices.discount(month)
        if paid > budget_usd:
            return month - 1
    return prices.months


def _fixed_rent_cost(prices: PriceAssumptions, used: float) -> float:
    """Return the part of a bill for rent that does not depend on the number of GPUs."""
    first_usd, two = (prices.rent(gpus, used, "on demand").usd for gpus in (1.0, 2.0))
    return 2 * first_usd - two


def _affordable_rent_gpus(
    prices: PriceAssumptions, budget_usd: float, used: float, kind: str
) -> float:
    """Return how many GPUs the budget rents. The bill is linear in the number of GPUs,
    and includes the cost of people from the first GPU on."""
    first_usd, two = (prices.rent(gpus, used, kind).usd for gpus in (1.0, 2.0))
    if two <= first_usd:
        return inf
    return max(0.0, (budget_usd - (2 * first_usd - two)) / (two - first_usd))
