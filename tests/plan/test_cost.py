"""What GPUs cost: worked examples by hand, and rules."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.catalog.devices import Device, device, devices
from corral.catalog.economics import assume, assumptions
from corral.catalog.prices import PriceList as Market
from corral.catalog.prices import prices as catalog_prices
from corral.catalog.prices import read_prices
from corral.domain.errors import NotFound, SpecInvalid
from corral.plan.cost.bills import (
    RENTS,
    CostRequest,
    PriceAssumptions,
    assumed,
    prices_of,
    values_of,
)
from corral.plan.cost.hybrid import best_mix, duration_curve, peak_and_use
from corral.plan.cost.market import SPREAD
from corral.plan.cost.plan import OWN, bill_of, cost
from corral.plan.cost.report import report
from corral.plan.page import page
from corral.plan.sensitivity import draws, spread, tornado

# prices of one day, and a USD of any month is a USD
PLAIN = {"server_per_gpu": 37_500.0, "on_demand": 2.95, "reserved_discount": 0.35,
         "spot_discount": 0.58, "capital": 0.0, "price_fall": 0.0}  # fmt: skip


def prices(request: CostRequest) -> PriceAssumptions:
    return prices_of(request, values_of(assume(request.assume)))


# corral plan cost --gpus 16 --utilisation 0.6 --assume server_per_gpu=37500
# on_demand=2.95   reserved_discount=0.35 spot_discount=0.58 capital=0 price_fall=0
STARTUP = CostRequest(gpus=16, gpu="h100-sxm", years=3.0, utilisation=0.6, assume=PLAIN)


def test_16_h100_for_a_startup_owned() -> None:
    # servers 16 x 37,500 = 600,000; network 12.5 % = 75,000; storage 80 TB x 400 =
    # 32,000; spares 3 % = 18,000: hardware 725,000; installation 5 % of the servers =
    # 30,000. power: 16 x 700 W x 1.82 = 20.384 kW, drawn to 0.6 x 0.7 + 0.4 x 0.25 =
    # 0.52, x 1.4 PUE   x 730 h x 0.10 = 1,083.29 a month; space 20.384 x 184.06 = 3,751.88;
    # people 0.5 + 16 x 0.004 = 0.564 of 180,000 = 8,460; support 5 % of 725,000 =
    # 3,020.83; other 1 % = 604.17: 16,920.17 a month, 609,125.99 in 36.
    # residual 725,000 x 0.67^3 = 218,053.18.
    # 755,000 + 609,125.99 - 218,053.18 = 1,146,072.81; used hours 16 x 0.6 x 26,280 =
    # 252,288
    own = cost(STARTUP).way(OWN)
    assert own.bill.once == pytest.approx(755_000.0)
    assert sum(line.monthly for line in own.bill.lines) == pytest.approx(
        16_920.17, abs=0.01
    )
    assert own.bill.usd == pytest.approx(1_146_072.81, abs=1.0)
    assert own.per_hour == pytest.approx(1_146_072.81 / 252_288, abs=1e-4)  # 4.54 USD


def test_16_h100_for_a_startup_rented() -> None:
    # on demand: 252,288 h x 2.95 = 744,249.60; storage 80 TB x 50 x 36 = 144,000;
    # people half of
    # 8,460 x 36 = 152,280: 1,040,529.60. Reserved: 420,480 h x 2.95 x 0.65 = 806,270.40
    # + 296,280. Spot: 252,288 x 2.95 x 0.42 / 0.90 = 347,316.48 + 296,280.
    found = cost(STARTUP)
    assert found.way("on demand").bill.usd == pytest.approx(1_040_529.60, abs=0.01)
    assert found.way("reserved").bill.usd == pytest.approx(1_102_550.40, abs=0.01)
    assert found.way("spot").bill.usd == pytest.approx(643_596.48, abs=0.01)
    # They meet at: own without use 755,000 + 36 x (520.81 power + 15,836.88 others) -
    # 218,053.18   = 1,125,823.65, + 33,748.60 x use; on demand 296,280 + 1,240,416 x use: 68.8 %
    assert found.way("on demand").even_use == pytest.approx(0.6875, abs=1e-3)


def test_what_500_000_usd_buy() -> None:
    # corral plan cost --gpus 8 --budget-usd 500000 --assume, as above
    # A node: 300,000 + 37,500 + 16,000 + 9,000 + 15,000 = 377,500: the budget pays one
    # at the start. To run it three years takes 12,257 x 36 = 441,250 more: not that.
    # Rented it is
    # 500,000 / 2.95 = 169,491.5 GPU-hours, 169,491.5 / 26,280 = 6.45 H100 around the
    # clock.
    request = CostRequest(gpus=8, budget_usd=500_000.0, assume=PLAIN)
    found = cost(request)
    assert found.bought is not None
    assert (found.bought.by_capital, found.bought.by_whole_cost) == (8, 0)
    assert found.bought.rented_hours == pytest.approx(169_491.5, abs=0.1)
    assert found.bought.rented_gpus == pytest.approx(6.449, abs=1e-3)
    # 122,500 are left of it: 122,500 / 12,256.96 = 9.99 months
    assert found.bought.months == 9
    assert found.bought.node_once == pytest.approx(377_500.0)
    assert found.bought.node_usd == pytest.approx(818_750.6, abs=1.0)
    # Kept for three years at 0.7: 26,280 h x 0.7 x 2.95 + 5 TB x 50 x 36 + half of
    # 0.004 x 540,000   = 54,268.2 + 9,000 + 1,080 = 64,348.2 a GPU,
    # and 135,000 for people however few: 5.67
    assert found.bought.kept_gpus == pytest.approx(
        (500_000 - 135_000) / 64_348.2, abs=1e-3
    )
    # on spot 54,268.2 x 0.42 / 0.90 = 25,325.2 instead: 365,000 / 35,405.2 = 10.3
    assert found.bought.kept_on_spot == pytest.approx(10.309, abs=1e-3)
    assert found.way(OWN).bill.spent == pytest.approx(377_500 + 36 * 12_256.96, abs=1.0)
    # where a tenth of an engineer will do, 6,000 a month less, one node runs for three
    # years on
    # 818,750 - 216,000 = 602,750: a budget of 650,000 buys and runs it
    frugal = replace(
        request,
        budget_usd=650_000.0,
        assume=PLAIN | {"engineers_least": 0.1, "pue": 1.4},
    )
    more = cost(frugal).bought
    assert more is not None
    assert more.by_whole_cost == 8


def test_a_misspelt_assumption_gets_the_nearest_name() -> None:
    with pytest.raises(NotFound) as refused:
        cost(CostRequest(gpus=8, assume={"puee": 1.3}))
    assert "pue" in refused.value.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [("pue", 0.9), ("spot_discount", 1.0), ("kwh", -1.0), ("kwh", float("nan"))],
)
def test_an_assumption_that_cannot_be_is_refused(name: str, value: float) -> None:
    with pytest.raises(SpecInvalid):
        assume({name: value})


@pytest.mark.parametrize(
    "wrong",
    [
        {"gpus": 0},
        {"years": 0.0},
        {"utilisation": 1.2},
        {"utilisation": 0.0},
        {"egress_tb_month": -1.0},
    ],
)
def test_a_request_that_cannot_be_is_refused(wrong: Mapping[str, float]) -> None:
    with pytest.raises(SpecInvalid):
        CostRequest(**{"gpus": 8} | dict(wrong))  # type: ignore[arg-type]


def test_each_assumption_lies_between_its_low_and_its_high() -> None:
    for one in assumptions().values():
        assert one.low < one.high, one.name
        assert one.low <= one.value <= one.high, one.name


@st.composite
def requests(draw: st.DrawFn) -> CostRequest:
    known = draw(
        st.lists(st.sampled_from(sorted(assumptions())), max_size=6, unique=True)
    )
    said = {
        name: spread(assumptions()[name], draw(st.floats(0.01, 0.99))) for name in known
    }
    return CostRequest(
        gpus=draw(st.integers(1, 4_000)),
        gpu=draw(st.sampled_from(("h100-sxm", "a100-sxm-80"))),
        years=draw(st.floats(0.5, 6.0)),
        utilisation=draw(st.floats(0.001, 1.0)),
        egress_tb_month=draw(st.floats(0.0, 100.0)),
        assume=said,
    )


DEARER_TO_OWN = (
    "server_per_gpu",
    "network_share",
    "storage_per_tb",
    "kwh",
    "pue",
    "engineer",
    # fmt: skip
    "space_kw_month",
    "support_share",
    "install_share",
    "spare_share",
)
DEARER_TO_RENT = ("on_demand", "cloud_storage", "egress", "cloud_people", "engineer")


@given(
    request=requests(), name=st.sampled_from(DEARER_TO_OWN), rise=st.floats(0.0, 0.5)
)
def test_a_higher_price_never_makes_owning_cheaper(
    request: CostRequest, name: str, rise: float
) -> None:
    low = prices(request)
    high = replace(low, of={**low.of, name: low.of[name] * (1 + rise)})
    gpus, used = request.gpus, request.utilisation
    assert high.own(gpus, used).usd >= low.own(gpus, used).usd * (1 - 1e-12)


@given(
    request=requests(), name=st.sampled_from(DEARER_TO_RENT), rise=st.floats(0.0, 0.5)
)
def test_a_higher_price_never_makes_renting_cheaper(
    request: CostRequest, name: str, rise: float
) -> None:
    low = prices(request)
    high = replace(low, of={**low.of, name: low.of[name] * (1 + rise)})
    for kind in RENTS:
        before = low.rent(request.gpus, request.utilisation, kind).usd
        assert high.rent(request.gpus, request.utilisation, kind).usd >= before * (
            1 - 1e-12
        )


@given(request=requests(), kind=st.sampled_from(RENTS))
def test_break_even_is_where_the_two_curves_meet(
    request: CostRequest, kind: str
) -> None:
    at = prices(request)
    even = at.even_use(request.gpus, kind)

    def gap(used: float) -> float:
        own, rent = (
            bill_of(at, OWN, request.gpus, used),
            bill_of(at, kind, request.gpus, used),
        )
        return own.usd - rent.usd

    if even is None:
        assert gap(1.0) > 0
    elif even == 0.0:
        assert max(gap(0.0), gap(1.0)) <= 1e-6 * at.own(request.gpus, 0.0).usd
    else:
        assert gap(even) == pytest.approx(
            0.0, abs=1e-6 * at.own(request.gpus, even).usd
        )
        assert gap(min(1.0, even * 1.1)) <= gap(even) + 1e-6


@given(request=requests())
def test_in_the_month_of_break_even_as_much_has_been_paid_for_rent(
    request: CostRequest,
) -> None:
    at, gpus, used = prices(request), request.gpus, request.utilisation
    month = at.even_month(gpus, used, "reserved")
    own, rent = at.own(gpus, used), at.rent(gpus, used, "reserved")
    running = sum(line.monthly for line in own.lines)
    each = sum(line.monthly for line in rent.lines)
    months = range(1, at.months + 1)
    paid = [m for m in months if m * each >= (own.once + m * running) * (1 - 1e-12)]
    assert month == (paid[0] if paid else None)


LOADS = st.lists(
    st.tuples(st.integers(0, 300).map(float), st.floats(0.1, 5_000.0)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60)
@given(request=requests(), loads=LOADS, node=st.sampled_from((1, 4, 8)))
def test_the_mix_is_never_dearer_than_any_other(
    request: CostRequest, loads: list[tuple[float, float]], node: int
) -> None:
    at = prices(replace(request, node_gpus=node))
    demand = tuple(loads)
    if not any(gpus for gpus, _ in demand):
        with pytest.raises(SpecInvalid):
            best_mix(at, demand)
        return
    found = best_mix(at, demand)
    assert found.best.usd <= min(found.all_own.usd, found.all_rent.usd)
    hours = sum(weight for _, weight in demand)
    shares = tuple((gpus, weight / hours) for gpus, weight in demand)
    # the scan of only some must be exact
    every = range(0, found.all_own.owned + 1, node)
    best = min(at.mix(owned, shares, "on demand").usd for owned in every)
    assert found.best.usd == pytest.approx(best, rel=1e-9)


def test_the_best_mix_by_hand() -> None:
    # Without people, storage, space, power and residual value an owned GPU costs 25,000
    # for one year of 8,760 h, and a rented hour 5.00: owning pays from 5,000 h on. 16
    # GPUs are asked for in all hours, 24 in 5,256 and 32 in 1,752: own 24. 24 x 25,000
    # + 8 x 1,752 x 5 = 670,080.
    free = ("network_share", "storage_per_tb", "spare_share", "install_share", "yearly_value",
            "kwh", "space_kw_month", "engineer", "support_share", "other_share", "capital",
            "price_fall", "cloud_storage", "egress")  # fmt: skip
    said = dict.fromkeys(free, 0.0) | {"server_per_gpu": 25_000.0, "on_demand": 5.0}
    request = CostRequest(gpus=32, years=1.0, assume=said)
    found = best_mix(
        prices(request), ((16.0, 3_504.0), (24.0, 3_504.0), (32.0, 1_752.0))
    )
    assert found.best.owned == 24
    assert found.best.usd == pytest.approx(670_080.0)


def test_a_duration_curve_counts_each_load() -> None:
    assert duration_curve([8.0, 16.0, 8.0, 0.0]) == (
        (16.0, 1.0),
        (8.0, 2.0),
        (0.0, 1.0),
    )


def test_draws_are_the_same_each_time_and_fill_every_slice() -> None:
    known = assume({"pue": 1.3})
    first, again = list(draws(known, 200, seed=7)), list(draws(known, 200, seed=7))
    assert first == again != list(draws(known, 200, seed=8))
    assert {values["pue"] for values in first} == {1.3}
    edges = [spread(known["kwh"], at / 200) for at in range(201)]
    drawn = sorted(values["kwh"] for values in first)
    assert all(
        low <= value <= high
        for low, value, high in zip(edges, drawn, edges[1:], strict=False)
    )
    # the middle is the usual
    assert drawn[100] == pytest.approx(known["kwh"].value, rel=0.01)


def test_the_tornado_tells_first_what_matters_most() -> None:
    known = assume({})
    swings = tornado(known, lambda values: 3 * values["pue"] + values["kwh"])
    # pue: 3 x (1.58 - 1.15) = 1.29; kwh: 0.18 - 0.06 = 0.12; nothing else moves it
    assert [(swing.name, round(swing.width, 9)) for swing in swings] == [
        ("pue", 1.29),
        ("kwh", 0.12),
    ]


def test_a_region_says_what_electricity_costs() -> None:
    texas = assumed(CostRequest(gpus=8, region="Texas"))["kwh"]
    assert (texas.value, texas.low, texas.high) == (0.066, 0.75 * 0.066, 1.25 * 0.066)
    assert "EIA" in texas.source
    assert (
        assumed(CostRequest(gpus=8, region="Texas", assume={"kwh": 0.2}))["kwh"].value
        == 0.2
    )
    with pytest.raises(
        SpecInvalid, match="no price of electricity in France"
    ) as refused:
        assumed(CostRequest(gpus=8, region="fr"))
    assert "us-tx" in refused.value.hint


def test_hours_that_a_demand_does_not_name_ask_for_nothing() -> None:
    # 64 GPUs for 2,000 of 8,760 h are 22.8 % of their hours: nobody buys them for that
    found = cost(CostRequest(gpus=64, demand=((64.0, 2_000.0),)))
    whole = cost(CostRequest(gpus=64, demand=((64.0, 2_000.0), (0.0, 6_760.0))))
    assert found.hybrid == whole.hybrid
    assert found.hybrid is not None
    assert found.hybrid.best.owned == 0
    peak, use = peak_and_use(((64.0, 2_000.0),))
    assert (peak, round(use * 8_760)) == (64, 2_000)


def test_the_report_shows_all_and_names_what_was_assumed() -> None:
    demand = ((64.0, 1_000.0), (16.0, 7_760.0))
    request = CostRequest(gpus=64, budget_usd=1e6, demand=demand, assume={"pue": 1.25})
    found = cost(request)
    shown = report(found)
    assert (
        shown.answer("GPUs to own").value == found.hybrid.best.owned
        if found.hybrid
        else False
    )
    assert any(
        line.startswith("pue = 1.25 times, as you set it") for line in shown.assumed
    )
    assert len(shown.assumed) == len(assumptions()) + 1
    assert "Own a base, rent the peaks" in page(shown)
    low, middle, high = (
        getattr(found.saving_band, name) for name in ("low", "middle", "high")
    )
    assert low < middle < high
    assert low < found.saving < high


LISTED = read_prices(
    [
        "subject,quantity,value,unit,source,date",
        "near:h200-sxm,on_demand,4,USD a GPU-hour,a list,2026-01-01",
        "near:h200-sxm,spot,1,USD a GPU-hour,a list,2026-01-01",
        "near:h200-sxm,reserved_1y,3,USD a GPU-hour,a list,2026-01-01",
        "far:h200-sxm,on_demand,6,USD a GPU-hour,a list,2026-01-01",
        "far:h200-sxm,spot,9,USD a GPU-hour,a list,2026-01-01",
        "away:h200-sxm,on_demand,5,USD a GPU-hour,a list,2026-01-01",
        "buy:h200-sxm,gpu,30000,USD,a list,2026-01-01",
        "buy:h100-sxm,gpu,25000,USD,a list,2026-01-01",
        "buy:h100-sxm,server,280000,USD,a list,2026-01-01",
    ]
)


def test_prices_of_a_gpu_are_those_of_the_list() -> None:
    known = assumed(CostRequest(gpus=8, gpu="h200-sxm"), LISTED)
    # 4, 5 and 6 on demand; near takes 3/4 off for spot, far asks for more than its full
    # price; a server costs 280,000 / 8 / 25,000 = 1.4 times its GPUs
    assert (
        known["on_demand"].low,
        known["on_demand"].value,
        known["on_demand"].high,
    ) == (4, 5, 6)
    assert known["spot_discount"].value == pytest.approx(0.75)
    assert known["reserved_discount"].value == pytest.approx(0.25)
    assert known["server_per_gpu"].value == pytest.approx(42_000.0)
    said = assumed(
        CostRequest(gpus=8, gpu="h200-sxm", assume={"on_demand": 4.5}), LISTED
    )
    assert said["on_demand"].value == 4.5
    near = assumed(CostRequest(gpus=8, gpu="h200-sxm", cloud="near"), LISTED)
    assert near["on_demand"].value == 4
    with pytest.raises(NotFound) as refused:
        assumed(CostRequest(gpus=8, gpu="h200-sxm", cloud="neer"), LISTED)
    assert "near" in refused.value.hint


def test_where_nobody_tells_a_price_it_is_an_h100s_by_bandwidth_and_said_first() -> (
    None
):
    # 2,039 / 3,350 GB/s = 0.609 of 37,500 USD
    nothing = Market(rents=(), sales=())
    found = cost(CostRequest(gpus=8, gpu="a100-sxm-80"), nothing)
    assert found.known["server_per_gpu"].value == pytest.approx(37_500 * 2_039 / 3_350)
    server, rent = found.cautions
    assert "the price of a server of NVIDIA A100 SXM 80GB" in server
    assert "the hourly price of" in rent
    assert report(found).warnings[:2] == found.cautions
    said = CostRequest(gpus=8, gpu="a100-sxm-80", assume={"on_demand": 2.0})
    assert cost(said, nothing).cautions == (server,)
    assert not cost(CostRequest(gpus=8, gpu="a100-sxm-80")).cautions


def test_an_h800_costs_what_an_h100_does() -> None:
    h100, h800 = (
        assumed(CostRequest(gpus=8, gpu=gpu)) for gpu in ("h100-sxm", "h800-sxm")
    )
    for name in ("on_demand", "server_per_gpu"):
        assert h800[name].value == pytest.approx(h100[name].value)


def test_four_of_five_known_rents_are_near_an_h100s_by_bandwidth() -> None:
    h100, listed = device("h100-sxm"), catalog_prices()
    known = [
        one for one in devices() if one.name != h100.name and listed.rent(one.name)
    ]
    off = [
        listed.typical(one.name)
        / listed.typical(h100.name)
        / (one.memory_bytes_per_s / h100.memory_bytes_per_s)
        for one in known
    ]
    near = [times for times in off if 1 / SPREAD <= times <= SPREAD]
    assert len(near) >= 0.8 * len(known)


@pytest.mark.parametrize("one", devices(), ids=lambda one: one.name)
def test_prices_of_every_gpu_lie_between_their_low_and_their_high(one: Device) -> None:
    for known in assumed(CostRequest(gpus=one.node_gpus, gpu=one.name)).values():
        assert known.low <= known.value <= known.high, known
