"""Plan for owning or renting: the cost of each option over the years, their break-even
points, and how certain these are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from corral.catalog.devices import device
from corral.catalog.economics import Assumption
from corral.catalog.prices import PriceList as Market
from corral.catalog.prices import prices as listed
from corral.plan.cost.bills import (
    RENTS,
    Bill,
    CostRequest,
    PriceAssumptions,
    assumed,
    prices_of,
    values_of,
)
from corral.plan.cost.budget import AffordableGpus, bought
from corral.plan.cost.hybrid import YEAR_HOURS, Demand, Hybrid, best_mix
from corral.plan.cost.market import LIKE, rented_only, untold
from corral.plan.cost.terms import (
    CloudKind,
    CostTerm,
    YearLine,
    cloud_kinds,
    even_bill,
    terms,
    year_lines,
)
from corral.plan.sensitivity import OutcomeBand, Swing, Values, band, draws, tornado
from corral.plan.text import brief

OWN: Final = "own"
TELLS: Final = {
    "server_per_gpu": "the price of a server of {}",
    "on_demand": "the hourly price of {}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnOrRent:
    """Owning, or one way of renting, with its cost. `per_hour`: USD for each used
    GPU-hour; `band` is its range under the assumptions. `even_use` and `even_month`:
    the share of the hours, and the month, from which on owning is not more expensive;
    None: not within the years. `own_wins`: share of the random draws in which owning
    costs less."""

    name: str
    bill: Bill
    per_hour: float | None
    band: OutcomeBand | None
    even_use: float | None = None
    even_month: int | None = None
    own_wins: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of owning and of renting.

    `saving` is the USD that owning saves against renting on demand, at the usual
    values. `swings` are the changes of the saving when one assumption at a time varies;
    `saving_band` is its range when all vary at once. `cautions` are warnings about
    missing data. `terms` compares one year with three years. `clouds` separates
    neo-clouds from hyperscalers. `year` has the running costs of owning in a year.
    `even_bill` is the cloud bill, in USD a month, at which both cost the same; owning
    costs less than any higher bill.
    """

    request: CostRequest
    prices: PriceAssumptions
    known: Mapping[str, Assumption]
    ways: tuple[OwnOrRent, ...]
    saving: float
    saving_band: OutcomeBand
    even_use_band: OutcomeBand | None
    cautions: tuple[str, ...]
    swings: tuple[Swing, ...]
    terms: tuple[CostTerm, ...]
    clouds: tuple[CloudKind, ...]
    year: tuple[YearLine, ...]
    even_bill: float
    bought: AffordableGpus | None
    hybrid: Hybrid | None
    by_use: tuple[tuple[float, tuple[float, ...]], ...]
    remarks: tuple[str, ...]

    def way(self, name: str) -> OwnOrRent:
        return next(option for option in self.ways if option.name == name)


def cost(request: CostRequest, market: Market | None = None) -> Costs:
    """Return the costs of a request. `market` is a price list; the default is the
    catalog's.

    Raises: NotFound for an unknown name; SpecInvalid for an impossible request.
    """
    known_terms = assumed(request, market)
    prices = prices_of(request, values_of(known_terms))
    gpus, utilisation = request.gpus, request.utilisation
    drawn = [prices_of(request, values) for values in draws(known_terms)]
    costs = {
        name: [
            bill_of(price_assumptions, name, gpus, utilisation).usd
            for price_assumptions in drawn
        ]
        for name in (OWN, *RENTS)
    }
    hours = [price_assumptions.hours(gpus, utilisation) for price_assumptions in drawn]
    saved = [
        rent - own_usd
        for rent, own_usd in zip(costs["on demand"], costs[OWN], strict=True)
    ]

    def saving(values: Values) -> float:
        price_set = prices_of(request, values)
        return (
            price_set.rent(gpus, utilisation, "on demand").usd
            - price_set.own(gpus, utilisation).usd
        )

    even = [
        price_assumptions.even_use(gpus, "on demand") for price_assumptions in drawn
    ]
    return Costs(
        request=request,
        prices=prices,
        known=known_terms,
        ways=tuple(
            _build_way(name, request, prices, costs, hours) for name in (OWN, *RENTS)
        ),
        saving=saving(prices.of),
        saving_band=band(saved),
        cautions=tuple(_caution_texts(request, known_terms, market or listed())),
        even_use_band=band([2.0 if share is None else share for share in even]),
        swings=tuple(tornado(known_terms, saving)),
        terms=terms(request, market or listed(), OWN),
        clouds=()
        if request.cloud
        else cloud_kinds(request, prices, market or listed()),
        year=tuple(year_lines(request, known_terms, prices.of)),
        even_bill=even_bill(prices, gpus, utilisation),
        bought=bought(prices, request.budget_usd, utilisation, gpus)
        if request.budget_usd
        else None,
        hybrid=best_mix(prices, _extend_to_full_year(request.demand))
        if request.demand
        else None,
        by_use=_by_use(prices, gpus),
        remarks=tuple(_assumption_remarks(known_terms)),
    )


def bill_of(prices: PriceAssumptions, way: str, gpus: float, used: float) -> Bill:
    return prices.own(gpus, used) if way == OWN else prices.rent(gpus, used, way)


def _build_way(
    name: str,
    request: CostRequest,
    prices: PriceAssumptions,
    costs: Mapping[str, list[float]],
    hours: list[float],
) -> OwnOrRent:
    gpus, utilisation = request.gpus, request.utilisation
    bill = bill_of(prices, name, gpus, utilisation)
    spread = [
        usd / gpu_hours
        for usd, gpu_hours in zip(costs[name], hours, strict=True)
        if gpu_hours
    ]
    wins = [
        own_usd < rent for own_usd, rent in zip(costs[OWN], costs[name], strict=True)
    ]
    is_rent = name != OWN
    return OwnOrRent(
        name=name,
        bill=bill,
        per_hour=bill.usd / prices.hours(gpus, utilisation) if utilisation else None,
        band=band(spread) if spread else None,
        even_use=prices.even_use(gpus, name) if is_rent else None,
        even_month=prices.even_month(gpus, utilisation, name) if is_rent else None,
        own_wins=sum(wins) / len(wins) if is_rent else None,
    )


def _by_use(
    prices: PriceAssumptions, gpus: int
) -> tuple[tuple[float, tuple[float, ...]], ...]:
    """Return the bills in USD at each share of used hours. An entry is (share, bills),
    owning first."""
    shares = [step / 20 for step in range(21)]
    return tuple(
        (
            use_share,
            tuple(
                bill_of(prices, option_name, gpus, use_share).usd
                for option_name in (OWN, *RENTS)
            ),
        )
        for use_share in shares
    )


def _assumption_remarks(known: Mapping[str, Assumption]) -> list[str]:
    def numbers(one: Assumption) -> str:
        usual = f"{one.name} = {brief(one.value)} {one.unit}"
        return (
            usual
            if one.is_known
            else f"{usual} ({brief(one.low)} to {brief(one.high)})"
        )

    return [
        f"{numbers(assumption)}, {assumption.source}: {assumption.title}"
        if assumption.is_known or assumption.source.startswith(LIKE)
        else f"{numbers(assumption)}: {assumption.title}"
        for assumption in known.values()
    ]


def _caution_texts(
    request: CostRequest, known: Mapping[str, Assumption], market: Market
) -> Iterator[str]:
    """Yield warnings for the top of the report: a GPU that can only be rented, prices
    without a source."""
    about = device(request.gpu)
    if kind := rented_only(about):
        yield f"{kind} can only be rented: owning is shown as if they could be bought."
    for name in untold(about, market):
        if name not in request.assume:
            assumption = known[name]
            yield (
                f"No source contains {TELLS[name].format(about.title)}; the assumption is "
                f"{brief(assumption.value)} "
                f"{assumption.unit}, {assumption.source} ({brief(assumption.low)} to "
                f"{brief(assumption.high)}). Set your own: "
                f"--assume {name}=NUMBER"
            )


def _extend_to_full_year(demand: Demand) -> Demand:
    """Return the demand for a full year. Hours that `demand` does not name get no
    demand."""
    rest = YEAR_HOURS - sum(hours for _, hours in demand)
    return (*demand, (0.0, rest)) if rest > 0 else demand
