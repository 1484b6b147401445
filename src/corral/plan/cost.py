"""Own or rent: what each way costs over the years, where they meet, and how sure that is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from corral.catalog.devices import device
from corral.catalog.economics import Assumption, assumptions
from corral.catalog.prices import Prices as Market
from corral.plan.bills import (
    RENTS,
    Bill,
    Bought,
    CostRequest,
    Prices,
    assumed,
    bought,
    prices_of,
    values_of,
)
from corral.plan.hybrid import Hybrid, best_mix
from corral.plan.market import PRICED
from corral.plan.uncertain import Band, Swing, Values, band, draws, tornado

OWN: Final = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Owning, or one way of renting. `per_hour`: USD for each GPU-hour that is used, with its band
    by the assumptions. `even_use` and `even_month`: from which share of the hours, and which month
    on, owning is no dearer; None: never, within the years. `own_wins`: how often owning costs less,
    of the draws."""

    name: str
    bill: Bill
    per_hour: float | None
    band: Band | None
    even_use: float | None = None
    even_month: int | None = None
    own_wins: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """`swings`: what owning saves against renting on demand, in USD, by one assumption at a time;
    `saving` is it at the usual values, `saving_band` with all of them off at once."""

    request: CostRequest
    prices: Prices
    known: Mapping[str, Assumption]
    ways: tuple[Way, ...]
    saving: float
    saving_band: Band
    even_use_band: Band | None
    swings: tuple[Swing, ...]
    bought: Bought | None
    hybrid: Hybrid | None
    by_use: tuple[tuple[float, tuple[float, ...]], ...]
    told: tuple[str, ...]

    def way(self, name: str) -> Way:
        return next(way for way in self.ways if way.name == name)

    @property
    def cheapest(self) -> Way:
        return min(self.ways, key=lambda way: way.bill.usd)


def cost(request: CostRequest, market: Market | None = None) -> Costs:
    """The answer. `market`: a list of prices; without it, that of the catalog.

    Raises: NotFound for a GPU, a cloud or an assumption that nobody knows, SpecInvalid.
    """
    known = assumed(request, market)
    prices = prices_of(request, values_of(known))
    gpus, used = request.gpus, request.utilisation
    drawn = [prices_of(request, values) for values in draws(known)]
    costs = {name: [bill_of(one, name, gpus, used).usd for one in drawn] for name in (OWN, *RENTS)}
    hours = [one.hours(gpus, used) for one in drawn]
    saved = [rent - own for rent, own in zip(costs["on demand"], costs[OWN], strict=True)]

    def saving(values: Values) -> float:
        at = prices_of(request, values)
        return at.rent(gpus, used, "on demand").usd - at.own(gpus, used).usd

    even = [one.even_use(gpus, "on demand") for one in drawn]
    return Costs(
        request=request,
        prices=prices,
        known=known,
        ways=tuple(_way(name, request, prices, costs, hours) for name in (OWN, *RENTS)),
        saving=saving(prices.of),
        saving_band=band(saved),
        even_use_band=band([2.0 if share is None else share for share in even]),
        swings=tuple(tornado(known, saving)),
        bought=bought(prices, request.budget_usd, used) if request.budget_usd else None,
        hybrid=best_mix(prices, request.demand) if request.demand else None,
        by_use=_by_use(prices, gpus),
        told=tuple(_told(request, known)),
    )


def bill_of(prices: Prices, way: str, gpus: float, used: float) -> Bill:
    return prices.own(gpus, used) if way == OWN else prices.rent(gpus, used, way)


def _way(
    name: str,
    request: CostRequest,
    prices: Prices,
    costs: Mapping[str, list[float]],
    hours: list[float],
) -> Way:
    gpus, used = request.gpus, request.utilisation
    bill = bill_of(prices, name, gpus, used)
    spread = [usd / each for usd, each in zip(costs[name], hours, strict=True) if each]
    wins = [own < rent for own, rent in zip(costs[OWN], costs[name], strict=True)]
    is_rent = name != OWN
    return Way(
        name=name,
        bill=bill,
        per_hour=bill.usd / prices.hours(gpus, used) if used else None,
        band=band(spread) if spread else None,
        even_use=prices.even_use(gpus, name) if is_rent else None,
        even_month=prices.even_month(gpus, used, name) if is_rent else None,
        own_wins=sum(wins) / len(wins) if is_rent else None,
    )


def _by_use(prices: Prices, gpus: int) -> tuple[tuple[float, tuple[float, ...]], ...]:
    """The bills, own first, by the share of the hours that are used."""
    shares = [step / 20 for step in range(21)]
    return tuple(
        (used, tuple(bill_of(prices, way, gpus, used).usd for way in (OWN, *RENTS)))
        for used in shares
    )


def _told(request: CostRequest, known: Mapping[str, Assumption]) -> list[str]:
    lines = [
        f"{one.name} = {one.value:,.6g} {one.unit} ({one.low:,.6g} to {one.high:,.6g}): {one.title}"
        if not one.is_known
        else f"{one.name} = {one.value:,.6g} {one.unit}, {one.source}: {one.title}"
        for one in known.values()
    ]
    usual = assumptions()
    missing = [name for name in ("server_per_gpu", "on_demand") if known[name] is usual[name]]
    if device(request.gpu).name != PRICED and missing:
        said = " and ".join(missing)
        lines.insert(
            0, f"{said}: nobody tells it of {request.gpu}, an H100's is taken; --assume it"
        )
    return lines
