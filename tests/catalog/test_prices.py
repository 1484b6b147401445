"""Prices: dated, plausible, and replaced by a list of one's own."""

import pytest

from corral.catalog.devices import device
from corral.catalog.prices import BOUGHT, KINDS, prices, read_prices
from corral.domain.errors import NotFound, SpecInvalid

HEAD = "subject,quantity,value,unit,source,date"


def line(subject: str, quantity: str, value: str) -> str:
    return f"{subject},{quantity},{value},USD a GPU-hour,our contract,2026-10-01"


def test_each_price_is_of_a_known_device_and_plausible() -> None:
    known = prices()
    for rent in known.rents:
        assert device(rent.device).name == rent.device
        assert 0.05 <= rent.usd_per_gpu_hour <= 20
        assert rent.cloud != BOUGHT
    for sale in known.sales:
        assert 1000 <= sale.usd <= 500_000


def test_what_binds_longer_or_may_be_taken_away_is_cheaper() -> None:
    by_offer: dict[tuple[str, str], dict[str, float]] = {}
    for rent in prices().rents:
        by_offer.setdefault((rent.cloud, rent.device), {})[rent.kind] = (
            rent.usd_per_gpu_hour
        )
    for offer in by_offer.values():
        asked = [offer[kind] for kind in KINDS[:3] if kind in offer]
        assert asked == sorted(asked, reverse=True)
        assert offer.get("spot", 0) <= offer.get("on_demand", float("inf"))


def test_all_kinds_of_rent_are_known_of_some_device() -> None:
    assert {rent.kind for rent in prices().rents} == set(KINDS)


def test_offers_come_cheapest_first_and_the_typical_one_is_their_median() -> None:
    own = read_prices(
        [
            HEAD,
            *(
                line(f"{cloud}:h100", "on_demand", usd)
                for cloud, usd in (("one", "4"), ("two", "2"), ("three", "9"))
            ),
        ]
    )
    assert [rent.cloud for rent in own.rent("h100-sxm")] == ["two", "one", "three"]
    assert own.typical("h100-sxm") == 4
    assert [rent.cloud for rent in own.rent("h100-sxm", cloud="three")] == ["three"]


def test_a_device_without_a_price_is_told_with_those_that_have_one() -> None:
    with pytest.raises(NotFound):
        prices().typical("h100-sxn")


def test_the_newest_sale_counts() -> None:
    h100 = prices().sale("h100-sxm")
    assert h100 is not None
    assert h100.usd == 30_000
    assert prices().sale("tpu-v4") is None


def test_a_list_of_ones_own_goes_before_the_catalog() -> None:
    own = read_prices([HEAD, line("aws:h100-sxm", "on_demand", "1.5")])
    both = own.or_else(prices())
    asked = [rent.usd_per_gpu_hour for rent in both.rent("h100-sxm", cloud="aws")]
    assert asked == [1.5]
    assert both.rent("h200-sxm") == prices().rent("h200-sxm")
    assert len(both.rents) == len(prices().rents)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (line("h100", "on_demand", "2"), "CLOUD:GPU"),
        (line("aws:h100", "weekly", "2"), "weekly"),
        (line("aws:h100", "gpu", "2"), "gpu"),
        (line("buy:h100", "spot", "2"), "spot"),
        (line("aws:h100", "on_demand", "0"), "must be above 0"),
        (line("aws:h100", "on_demand", "cheap"), "cheap"),
        ("aws:h100,on_demand,2", "lacks a value"),
    ],
)
def test_a_line_that_is_not_in_order_is_told(bad: str, reason: str) -> None:
    with pytest.raises(SpecInvalid, match=reason):
        read_prices([HEAD, bad])


def test_a_price_that_is_given_twice_is_refused() -> None:
    twice = line("aws:h100", "on_demand", "2")
    with pytest.raises(SpecInvalid, match="twice"):
        read_prices([HEAD, twice, twice])


def test_an_unknown_device_gets_the_nearest_name() -> None:
    with pytest.raises(NotFound) as refused:
        read_prices([HEAD, line("aws:h100-sxn", "on_demand", "2")])
    assert "h100-sxm" in refused.value.hint
