"""What stands side by side in an answer on cost, and two published cases with their own
inputs."""

from datetime import date
from statistics import median

import pytest

from corral.catalog.prices import is_hyperscaler, prices, read_prices
from corral.plan.cost.bills import CostRequest
from corral.plan.cost.plan import OWN, cost
from corral.plan.cost.report import report

# A guide for builders: 16 GPUs, hardware of 1.8 to 2.5 million USD, 50 thousand to set
# up and 5 thousand a month for space, 250 to 400 thousand a year for people, 50 to 100
# for software and support, 20 to 30 for power at 7 kW a server; instances of 8 at 100
# USD an hour.
GUIDE = {
    "server_per_gpu": 105_000.0, "install_share": 0.03, "space_kw_month": 330.0,
    "engineers_least": 1.5, "engineer": 200_000.0, "support_share": 0.015,
    "software_per_gpu": 2_500.0, "kwh": 0.24, "node_watts": 1.25, "on_demand": 12.5,
    "spare_share": 0.02, "other_share": 0.005,
}  # fmt: skip


def test_the_16_gpu_case_is_reproduced_from_its_own_inputs() -> None:
    found = cost(CostRequest(gpus=16, assume=GUIDE))
    bill = found.way(OWN).bill
    lines = {line.name: line for line in bill.lines}
    hardware = sum(
        lines[name].once for name in ("servers", "network", "storage", "spares")
    )
    yearly = {name: 12 * line.monthly for name, line in lines.items()}
    assert 1.8e6 <= hardware <= 2.5e6
    assert lines["installation"].once == pytest.approx(50_000, rel=0.05)
    assert lines["space"].monthly == pytest.approx(5_000, rel=0.1)
    assert 250_000 <= yearly["people"] <= 400_000
    assert 50_000 <= yearly["support"] + yearly["software licences"] <= 100_000
    assert 20_000 <= yearly["power"] <= 30_000
    assert sum(yearly.values()) >= 350_000
    # Over three years the cloud costs more, since it is used steadily.
    assert found.way("on demand").bill.usd > bill.usd
    assert found.terms[-1].cheapest == OWN


def test_16_instances_of_that_price_take_more_than_a_million_a_month() -> None:
    found = cost(CostRequest(gpus=128, utilisation=1.0, assume={"on_demand": 12.5}))
    rent = next(
        line for line in found.way("on demand").bill.lines if line.name == "rent"
    )
    assert rent.monthly == pytest.approx(1_168_000)


def test_500_000_usd_are_a_cloud_for_12_to_18_months_or_a_node() -> None:
    found = cost(CostRequest(gpus=16, budget_usd=500_000.0))
    assert found.bought is not None
    assert 12 <= found.bought.rented_months <= 18
    assert found.bought.by_whole_cost == 0
    assert 350_000 < found.bought.node_once < 500_000, "one node takes most of it"
    assert found.terms[0].cheapest in ("on demand", "reserved")


def test_owning_pays_from_a_bill_of_about_40_000_a_month() -> None:
    found = cost(CostRequest(gpus=16, utilisation=1.0))
    assert 30_000 < found.even_bill < 50_000
    answer = report(found).answer("cloud bill from which owning pays")
    assert answer.value == found.even_bill


def test_one_year_and_three_stand_side_by_side_with_the_term_asked_for() -> None:
    found = cost(CostRequest(gpus=8, years=2.0))
    assert [term.years for term in found.terms] == [1.0, 2.0, 3.0]
    asked = found.terms[1]
    assert asked.bills[OWN].usd == pytest.approx(found.way(OWN).bill.usd)
    assert any(table.title == "One year, three years" for table in report(found).tables)


def test_running_costs_have_a_low_and_a_high_with_their_source() -> None:
    lines = {line.name: line for line in cost(CostRequest(gpus=16)).year}
    for name in ("people", "support", "software licences"):
        assert lines[name].low <= lines[name].usual <= lines[name].high
        assert lines[name].low < lines[name].high
        assert lines[name].source
    assert lines["software licences"].high == pytest.approx(16 * 4_500)


LISTED = read_prices(
    [
        "subject,quantity,value,unit,source,date",
        "aws:h200-sxm,on_demand,9,USD a GPU-hour,a list,2026-01-01",
        "azure:h200-sxm,on_demand,11,USD a GPU-hour,a list,2026-01-02",
        "gcp:h200-sxm,on_demand,30,USD a GPU-hour,a list,2024-05-01",
        "near:h200-sxm,on_demand,3,USD a GPU-hour,a list,2026-01-01",
        "far:h200-sxm,on_demand,4,USD a GPU-hour,a list,2025-06-01",
        "gone:h200-sxm,on_demand,40,USD a GPU-hour,a list,2023-01-01",
    ]
)


def test_neo_clouds_and_hyperscalers_stand_apart_and_old_prices_are_left_out() -> None:
    found = cost(CostRequest(gpus=8, gpu="h200-sxm"), LISTED)
    assert found.known["on_demand"].value == median((9, 11, 3, 4))
    neo, large = found.clouds
    assert (neo.name, neo.usd_per_gpu_hour, neo.left_out) == ("neo-clouds", 3.5, 1)
    assert (large.name, large.usd_per_gpu_hour, large.left_out) == (
        "hyperscalers",
        10.0,
        1,
    )
    assert neo.usd < large.usd
    assert not cost(CostRequest(gpus=8, gpu="h200-sxm", cloud="near"), LISTED).clouds


def test_an_old_price_stands_where_there_is_no_newer_one() -> None:
    alone = read_prices(
        [
            "subject,quantity,value,unit,source,date",
            "aws:h200-sxm,on_demand,9,USD a GPU-hour,a list,2020-01-01",
        ]
    )
    assert alone.typical("h200-sxm") == 9


def test_the_usual_h100_price_is_the_median_of_several_sources_of_the_last_year() -> (
    None
):
    offers = prices().current("h100-sxm")
    assert len(offers) >= 4
    assert min(one.date for one in offers) > date(2025, 10, 1)
    assert prices().typical("h100-sxm") == median(
        one.usd_per_gpu_hour for one in offers
    )
    assert {is_hyperscaler(one.cloud) for one in offers} == {True, False}
