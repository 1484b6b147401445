"""What the answer on cost says to do, in a sentence."""

from collections.abc import Mapping

from corral.plan.cost.advice import advice
from corral.plan.cost.bills import CostRequest
from corral.plan.cost.plan import OWN, Costs, cost

# prices of one day, and a USD of any month is a USD: 16 H100 of
# tests/plan/test_cost.py, by hand
PLAIN = {"server_per_gpu": 37_500.0, "on_demand": 2.95, "reserved_discount": 0.35,
         "spot_discount": 0.58, "capital": 0.0, "price_fall": 0.0}  # fmt: skip


def found(
    used: float, assume: Mapping[str, float] = PLAIN, *, budget: float | None = None
) -> Costs:
    return cost(
        CostRequest(
            gpus=16, utilisation=used, assume={**PLAIN, **assume}, budget_usd=budget
        )
    )


def test_what_is_used_little_is_rented_and_told_from_which_use_on_it_is_not() -> None:
    # at 0.2 it is 296,280 + 248,083.2 = 544,363 USD on demand and 1,132,573 owned:
    # 588,210 less
    told = advice(found(0.2))
    assert told.startswith(
        "Rent on demand: 16 GPUs used for 20 % of the hours cost 544,363 USD over 3 years, "
        "588,210 USD (52 %) less than owning."
    )
    assert "Buying is cheaper than renting on demand from 69 % use on." in told


def test_what_is_used_always_is_bought_and_told_when_it_is_paid_back() -> None:
    # at 1 and 5 USD an hour on demand comes to 296,280 + 2,102,400; owning to 1,159,572
    told = advice(found(1.0, {"on_demand": 5.0, "reserved_discount": 0.1}))
    assert told.startswith(
        "Buy: 16 GPUs used for 100 % of the hours cost 1.16 million USD"
    )
    month = found(1.0, {"on_demand": 5.0}).way("on demand").even_month
    assert f"is paid back in month {month}." in told
    assert "most important assumptions" not in told


def test_a_discount_that_is_deep_enough_is_reserved_for() -> None:
    # 420,480 h x 2.95 x 0.3 + 296,280 = 668,405
    told = advice(found(0.9, {"reserved_discount": 0.7}))
    assert told.startswith(
        "Reserve: 16 GPUs used for 90 % of the hours cost 668,405 USD"
    )


def test_ways_that_cost_alike_are_told_to_be_and_what_would_decide() -> None:
    # They meet at 0.6875 (tests/plan/test_cost.py); reserving would be as near to them.
    even = found(0.69, {"reserved_discount": 0.0})
    told = advice(even)
    assert told.startswith(
        "The difference is too small to decide; owning is slightly cheaper: "
    )
    assert (
        f"most important assumptions are {even.swings[0].name} and {even.swings[1].name}"
        in told
    )


def test_what_may_be_stopped_at_any_moment_goes_on_spot_where_that_is_cheaper() -> None:
    # at 0.6 on spot 643,596 against 1,040,530 on demand: 38 % less
    assert "costs 643,596 USD on spot GPUs, 38 % less" in advice(found(0.6))
    assert "spot" not in advice(found(0.6, {"spot_discount": 0.0}))


def test_a_budget_that_does_not_reach_is_told_what_would() -> None:
    # a node of 8: 377,500 at the start, and 818,750 in all (tests/plan/test_cost.py, at
    # 0.7)
    told = advice(found(0.7, budget=500_000.0))
    assert told.startswith(
        "500,000 USD buy 8 GPUs and run them for 9 months; for 3 years, 8 GPUs cost 818,750 USD."
    )
    # 16 x 730 h x 0.7 x 2.95 + 80 TB x 50 + half of 8,460 = 32,349 a month: 15.5 months
    assert "At 70 % use, the budget rents 16 GPUs on demand for 15 months" in told
    assert "for 3 years it rents 5.7 GPUs on demand, or 10.3 on spot" in told
    assert "200,000 USD buy no node: 8 GPUs cost 377,500 USD" in advice(
        found(0.7, budget=2e5)
    )
    assert "buy 8 GPUs and run them for 3 years." in advice(found(0.7, budget=9e5))


def test_where_the_budget_is_short_of_the_cheapest_way_it_is_said() -> None:
    assert "With a larger budget rent on demand: 16 GPUs" in advice(
        found(0.2, budget=5e5)
    )
    assert "With a larger budget" not in advice(found(0.2, budget=6e5))


def test_what_is_rented_only_is_never_advised_to_be_bought() -> None:
    tpus = cost(CostRequest(gpus=8, gpu="tpu-v5p", utilisation=0.95))
    assert tpus.way(OWN).bill.usd < tpus.way("on demand").bill.usd
    assert "buy" not in advice(tpus).lower()
    assert "only be rented" in tpus.cautions[0]


def test_a_small_budget_rents_for_a_while_and_never_0_0_gpus() -> None:
    told = advice(found(0.7, budget=100_000.0))
    assert (
        "the budget rents 16 GPUs on demand for 3 months; for 3 years it rents none"
        in told
    )
    assert "staff for a rented cluster cost 135,000 USD" in told
    assert "0.0" not in told


def test_the_term_decides_and_is_said() -> None:
    # One year: own 755,000 + 203,042 - 485,750 = 472,000, on demand 98,760 + 0.9 x
    # 392,448 =
    # 452,000. Three years: 1,156,000 and 296,280 + 0.9 x 1,177,344 = 1,356,000.
    told = advice(found(0.9, {"on_demand": 2.8, "reserved_discount": 0.0}))
    assert "For 1 year the cheapest way is on demand, for 3 years own." in told


def test_the_bill_from_which_owning_pays_is_what_owning_comes_to_a_month() -> None:
    # 1,146,073 at 0.6 (tests/plan/test_cost.py) over 36 months
    assert "if the cloud bill exceeds 31,835 USD a month" in advice(found(0.6))
