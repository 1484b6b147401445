"""Own or rent side by side: for one year and for three, at both kinds of cloud, and by
the monthly bill."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from corral.catalog.devices import device
from corral.catalog.economics import Assumption
from corral.catalog.prices import PriceList as Market
from corral.catalog.prices import Rent, is_hyperscaler
from corral.plan.cost.bills import (
    RENTS,
    Bill,
    CostRequest,
    PriceAssumptions,
    assumed,
    prices_of,
    values_of,
)

TERMS: Final = (1.0, 3.0)  # years that are compared, in addition to the requested ones
LONGEST_MONTHS: Final = 240
# Lines of a year of owning, and the assumptions that each of them rises with.
RUNNING: Final[Mapping[str, tuple[str, ...]]] = {
    "people": ("engineer", "engineers_least", "engineers_per_gpu"),
    "support": ("support_share", "server_per_gpu"),
    "software licences": ("software_per_gpu",),
    "power": ("kwh", "node_watts", "busy_draw", "pue"),
    "space": ("space_kw_month", "node_watts"),
    "insurance and line": ("other_share", "server_per_gpu"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTerm:
    """The bills of one term in years, owning first. `even_use`: the share of the hours
    from which on owning costs no more than renting on demand; None: it always costs
    more."""

    years: float
    bills: Mapping[str, Bill]
    even_use: float | None

    @property
    def cheapest(self) -> str:
        """Return the name of the cheapest option. Spot is left out, because a cloud may
        withdraw it at any moment."""
        return min(
            (option_name for option_name in self.bills if option_name != "spot"),
            key=lambda way: self.bills[way].usd,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudKind:
    """Median offer of one kind of cloud. `left_out`: number of older offers that newer
    offers replace. `usd`: the bill of renting on demand. `even_use`: as in CostTerm."""

    name: str
    offers: tuple[Rent, ...]
    left_out: int
    usd_per_gpu_hour: float
    usd: float
    even_use: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class YearLine:
    """One running cost of owning in a year: the usual value, and the values with its
    assumptions at their low and high."""

    name: str
    usual: float
    low: float
    high: float
    source: str


def terms(request: CostRequest, market: Market, own: str) -> tuple[CostTerm, ...]:
    """Return the costs for one year, three years and the requested years, each with the
    prices for that term."""
    return tuple(
        _build_term(replace(request, years=years), market, own)
        for years in sorted({*TERMS, request.years})
    )


def _build_term(request: CostRequest, market: Market, own: str) -> CostTerm:
    prices = prices_of(request, values_of(assumed(request, market)))
    gpus, utilisation = request.gpus, request.utilisation
    rents = {kind: prices.rent(gpus, utilisation, kind) for kind in RENTS}
    return CostTerm(
        years=request.years,
        bills={own: prices.own(gpus, utilisation), **rents},
        even_use=prices.even_use(gpus, "on demand"),
    )


def cloud_kinds(
    request: CostRequest, prices: PriceAssumptions, market: Market
) -> tuple[CloudKind, ...]:
    """Return the offers of neo-clouds and of hyperscalers separately. A kind that does
    not rent out this GPU is left out."""
    name = device(request.gpu).name
    current, all_rents = market.current(name), market.rent(name)
    kinds = []
    for title, large in (("neo-clouds", False), ("hyperscalers", True)):
        offers = tuple(rent for rent in current if is_hyperscaler(rent.cloud) is large)
        listed = [rent for rent in all_rents if is_hyperscaler(rent.cloud) is large]
        if offers:
            kinds.append(
                _cloud_kind(title, offers, len(listed) - len(offers), request, prices)
            )
    return tuple(kinds)


def _cloud_kind(
    title: str,
    offers: tuple[Rent, ...],
    left_out: int,
    request: CostRequest,
    prices: PriceAssumptions,
) -> CloudKind:
    usd = median(offer.usd_per_gpu_hour for offer in offers)
    price_assumptions = replace(prices, of={**prices.of, "on_demand": usd})
    return CloudKind(
        name=title,
        offers=offers,
        left_out=left_out,
        usd_per_gpu_hour=usd,
        usd=price_assumptions.rent(request.gpus, request.utilisation, "on demand").usd,
        even_use=price_assumptions.even_use(request.gpus, "on demand"),
    )


def even_bill(prices: PriceAssumptions, gpus: float, used: float) -> float:
    """Return the monthly amount in USD that owning costs. A cloud bill above it, for
    the same work, is more expensive."""
    return prices.own(gpus, used).usd / prices.worth


def rented_months(
    prices: PriceAssumptions, gpus: float, used: float, budget_usd: float
) -> int:
    """Return the whole months for which a budget rents GPUs on demand, with storage and
    people."""
    bill = {
        line.name: line.monthly for line in prices.rent(gpus, used, "on demand").lines
    }
    rest = sum(usd for name, usd in bill.items() if name != "rent")
    paid = 0.0
    for month in range(1, LONGEST_MONTHS + 1):
        fallen = (1 - prices.of["price_fall"]) ** ((month - 1) / 12)
        paid += (bill["rent"] * fallen + rest) * prices.discount(month)
        if paid > budget_usd:
            return month - 1
    return LONGEST_MONTHS


def year_lines(
    request: CostRequest, known: Mapping[str, Assumption], values: Mapping[str, float]
) -> Iterator[YearLine]:
    """Yield the running costs of a year of owning, by line."""
    gpus, utilisation = request.gpus, request.utilisation

    def yearly(name: str, of: Mapping[str, float]) -> float:
        bill = prices_of(request, of).own(gpus, utilisation)
        return 12 * next(
            (line.monthly for line in bill.lines if line.name == name), 0.0
        )

    for name, rising in RUNNING.items():
        low_values = dict(values) | {term: known[term].low for term in rising}
        high_values = dict(values) | {term: known[term].high for term in rising}
        yield YearLine(
            name=name,
            usual=yearly(name, values),
            low=yearly(name, low_values),
            high=yearly(name, high_values),
            source=known[rising[0]].source,
        )
