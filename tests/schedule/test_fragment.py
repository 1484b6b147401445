from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.schedule.arrays.fragmentation import (
    CPU_PER_GPU,
    FADE_AFTER,
    LEVEL,
    LEVELS,
    MEMORY_PER_GPU,
    Demand,
    arrive,
    new_demand,
    stranded,
)


def after(*shares: int, each: int = 40) -> Demand:
    demand = new_demand()
    for _ in range(each):
        for share in shares:
            arrive(demand, 0, share, 1000, 1000, 1)
    return demand


def wasted(demand: Demand, millis: int) -> float:
    return float(demand.part_waste[millis // LEVEL])


def test_before_anybody_has_come_a_part_is_wasted_whole_and_a_free_gpu_is_not() -> None:
    demand = new_demand()
    assert [wasted(demand, millis) for millis in (0, 250, 990, 1000)] == [
        0,
        0.25,
        0.99,
        0,
    ]


def test_a_part_wastes_what_the_shares_that_come_leave_of_it() -> None:
    halves = after(500)
    for millis, waste in ((500, 0.0), (300, 0.3), (700, 0.2), (1000, 0.0)):
        assert wasted(halves, millis) == pytest.approx(waste, abs=0.02)
    mixed = after(600, 400)
    assert wasted(mixed, 600) + wasted(mixed, 400) == pytest.approx(0, abs=0.02)
    assert wasted(mixed, 500) > wasted(mixed, 400) + 0.09


def test_where_only_every_other_gpu_finds_its_match_the_large_share_carries_the_waste() -> (
    None
):
    """Of 0.7 and 0.3, twice as many are large: the 0.3 left beside a large one is worth
    little."""
    demand = after(700, 700, 300)
    assert wasted(demand, 300) > 0.25
    assert wasted(demand, 700) < 0.05


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(1, 99).map(lambda level: level * 10), min_size=1, max_size=30)
)
def test_no_set_of_shares_that_fits_on_one_gpu_is_priced_above_it(
    shares: list[int],
) -> None:
    demand = after(*shares, each=2)
    prices = {share: float(demand.price[share // LEVEL]) for share in shares}
    for many in (1, 2, 3):
        for some in combinations_with_replacement(prices, many):
            assert sum(some) > 1000 or sum(prices[share] for share in some) <= 1 + 1e-9
    assert all(demand.part_waste[level] <= level / LEVELS for level in range(LEVELS))


def test_gpus_are_stranded_beyond_what_cpu_or_memory_carries_at_the_usual_ratio() -> (
    None
):
    demand = new_demand()
    assert stranded(demand, 8000, 0, 0) == 0
    arrive(demand, 1, 0, 10_000, 50_000, 3)
    arrive(demand, 0, 500, 8_000, 10_000, 2)
    arrive(demand, 0, 0, 90_000, 0, 9)
    assert demand.sums[CPU_PER_GPU] == 46_000 / 4
    assert demand.sums[MEMORY_PER_GPU] == 170_000 / 4
    assert stranded(demand, 8000, 92_000, 340_000) == 0
    assert stranded(demand, 8000, 46_000, 340_000) == 4000
    assert stranded(demand, 8000, 46_000, 85_000) == 6000


def test_what_came_long_ago_counts_less_and_less() -> None:
    demand = new_demand()
    for _ in range(FADE_AFTER):
        arrive(demand, 0, 500, 1000, 1000, 1)
    for _ in range(FADE_AFTER):
        arrive(demand, 0, 300, 4000, 1000, 1)
    assert demand.shares[30] > 2 * demand.shares[50]
    assert demand.sums[CPU_PER_GPU] > 7000


def test_shares_of_a_gang_count_once_a_node() -> None:
    gangs, singles = new_demand(), new_demand()
    arrive(gangs, 0, 250, 1000, 1000, 4)
    for _ in range(4):
        arrive(singles, 0, 250, 1000, 1000, 1)
    assert list(gangs.shares) == list(singles.shares)
