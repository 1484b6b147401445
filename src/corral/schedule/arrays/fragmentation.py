"""Fragmentation caused by a placement: free GPUs that none of the usual jobs can use
afterwards.

FGD (Weng et al., ATC'23) checks for each usual job whether ONE more of it fits. Here
two prices are learned from the jobs that have arrived, and the cost of a placement is
the rise of their sum, in GPUs:

- A part of a GPU is worth the best set of usual shares that fits in it, at the dual
prices of packing all arrived shares on the fewest GPUs (cutting stock); the rest of it
is waste.
- GPUs are stranded if they exceed what a node's free CPU and memory can support at the
arrived mean per GPU.

A third price, for whole GPUs that jobs of several GPUs leave over, made both results
worse (benchmarks, B3).
"""

from math import sqrt
from typing import Any, Final, NamedTuple

from corral.schedule.arrays.cluster import WHOLE
from corral.schedule.arrays.compiled import column, compiled

LEVEL: Final = 10  # thousandths of a GPU in one step of the price tables
LEVELS: Final = WHOLE // LEVEL
ROUNDS: Final = 200  # of price learning; more of them changed no result
UNKNOWN: Final = -1.0
FADE_AFTER: Final = 1 << 15  # arrivals after which all that is remembered counts half

GPUS, CPU, MEMORY, ARRIVED, LEARN_AT, CPU_PER_GPU, MEMORY_PER_GPU = range(7)


class Demand(NamedTuple):
    """The usual requests of jobs, learned from all jobs that have arrived. They
    determine which free resources count as waste.

    `sums`, indexed by the names above, holds the sums over jobs with GPUs (millis,
    millis, MiB, jobs). `shares` counts the requested shares of a GPU by size, in units
    of LEVEL. `price` is the dual price of a share in GPUs. `part_waste` is the waste,
    in GPUs, of a free part of a GPU, by the size of the part in units of LEVEL. The
    other fields are work space.
    """

    sums: Any
    shares: Any
    price: Any
    part_waste: Any
    sizes: Any
    weights: Any
    trial: Any
    value: Any
    choice: Any
    used: Any


def new_demand() -> Demand:
    """Return the demand before any job has arrived. A free part of a GPU counts as
    wasted completely, and nothing else has a cost."""
    demand = Demand(
        sums=column(7, "float"),
        shares=column(LEVELS + 1, "float"),
        price=column(LEVELS + 1, "float", UNKNOWN),
        part_waste=column(LEVELS + 1, "float"),
        sizes=column(LEVELS + 1, "int"),
        weights=column(LEVELS + 1, "float"),
        trial=column(LEVELS + 1, "float"),
        value=column(LEVELS + 1, "float"),
        choice=column(LEVELS + 1, "int"),
        used=column(LEVELS + 1, "int"),
    )
    for level in range(1, LEVELS):
        demand.part_waste[level] = level / LEVELS
    return demand


@compiled
def arrive(
    demand: Demand, gpus: int, share: int, cpu: int, memory: int, nodes: int
) -> None:
    """Learn from a job that was submitted, whether it was placed or not: its request
    per node, and its number of nodes."""
    millis = gpus * WHOLE + share
    if not millis:
        return
    sums = demand.sums
    sums[GPUS] += millis * nodes
    sums[CPU] += cpu * nodes
    sums[MEMORY] += memory * nodes
    sums[ARRIVED] += 1
    if share:
        demand.shares[min(LEVELS, -(-share // LEVEL))] += nodes
    sums[CPU_PER_GPU] = sums[CPU] * WHOLE / sums[GPUS]
    sums[MEMORY_PER_GPU] = sums[MEMORY] * WHOLE / sums[GPUS]
    if sums[ARRIVED] >= sums[LEARN_AT]:
        sums[LEARN_AT] = sums[ARRIVED] + min(1000, 1 + sums[ARRIVED] // 2)
        _refit_demand(demand)
    if sums[ARRIVED] >= FADE_AFTER:
        _decay_demand(demand)


@compiled
def _decay_demand(demand: Demand) -> None:
    for sum_index in (GPUS, CPU, MEMORY, ARRIVED, LEARN_AT):
        demand.sums[sum_index] /= 2
    for level in range(LEVELS + 1):
        demand.shares[level] /= 2


@compiled
def _refit_demand(demand: Demand) -> None:
    kinds, weight = _gather_sizes(demand)
    if not kinds:
        return
    _learn_prices(demand, kinds, weight)
    _best_fills(demand, kinds, demand.price)
    for level in range(1, LEVELS):
        demand.part_waste[level] = level / LEVELS - demand.value[level]


@compiled
def _gather_sizes(demand: Demand) -> tuple[int, float]:
    """Collect the share sizes that have arrived, with their counts and initial prices,
    in the work space. Return the number of sizes, and how many GPUs one share takes on
    average."""
    kinds, arrived, levels = 0, 0.0, 0.0
    for level in range(1, LEVELS + 1):
        if demand.shares[level]:
            demand.sizes[kinds] = level
            demand.weights[kinds] = demand.shares[level]
            known_price = demand.price[level]
            demand.trial[level] = (
                level / LEVELS if known_price == UNKNOWN else known_price
            )
            arrived += demand.shares[level]
            levels += demand.shares[level] * level
            kinds += 1
    for kind in range(kinds):
        demand.weights[kind] /= arrived
    return kinds, levels / LEVELS / max(arrived, 1.0)


@compiled
def _learn_prices(demand: Demand, kinds: int, mean: float) -> None:
    """Improve the share prices by subgradient steps on the dual problem of cutting
    stock. Start from the last prices, and keep the best prices.

    A fill is a set of shares that fits on one GPU. The price of a size rises while the
    best fill uses less of that size than arrives.
    """
    best_worth = -1.0
    for turn in range(ROUNDS):
        _best_fills(demand, kinds, demand.trial)
        best_fill_value = demand.value[LEVELS]
        worth = 0.0
        for kind in range(kinds):
            worth += (
                demand.weights[kind]
                * demand.trial[demand.sizes[kind]]
                / best_fill_value
            )
        if worth > best_worth:
            best_worth = worth
            for kind in range(kinds):
                size = demand.sizes[kind]
                demand.price[size] = demand.trial[size] / best_fill_value
        _count_fill(demand, kinds)
        pace = 0.05 / sqrt(turn + 1.0)
        for kind in range(kinds):
            size = demand.sizes[kind]
            lack = demand.weights[kind] / mean - demand.used[kind]
            price = demand.trial[size] / best_fill_value + pace * lack * size / LEVELS
            demand.trial[size] = min(1.0, max(0.0, price))


@compiled
def _best_fills(demand: Demand, kinds: int, prices: Any) -> None:
    """Compute, for each size of a free part of a GPU, the set of shares with the
    highest total price that fits in it.

    `value` receives the total price. `choice` receives the last share size that was
    added to the set; -1 if no share fits.
    """
    for level in range(LEVELS + 1):
        demand.value[level] = demand.value[level - 1] if level else 0.0
        demand.choice[level] = -1
        for kind in range(kinds):
            size = demand.sizes[kind]
            if size <= level:
                worth = demand.value[level - size] + prices[size]
                if worth > demand.value[level] + 1e-12:
                    demand.value[level] = worth
                    demand.choice[level] = kind


@compiled
def _count_fill(demand: Demand, kinds: int) -> None:
    for kind in range(kinds):
        demand.used[kind] = 0
    levels_left = LEVELS
    while levels_left > 0:
        kind = demand.choice[levels_left]
        if kind < 0:
            levels_left -= 1
        else:
            demand.used[kind] += 1
            levels_left -= demand.sizes[kind]


@compiled
def stranded(demand: Demand, millis: int, cpu: int, memory: int) -> float:
    """Return how many of `millis` thousandths of free GPUs are unusable, because the
    free `cpu` or `memory` is too small for usual jobs on them."""
    worst = 0.0
    if demand.sums[CPU_PER_GPU] > 0:
        worst = max(worst, millis - cpu * WHOLE / demand.sums[CPU_PER_GPU])
    if demand.sums[MEMORY_PER_GPU] > 0:
        worst = max(worst, millis - memory * WHOLE / demand.sums[MEMORY_PER_GPU])
    return worst
