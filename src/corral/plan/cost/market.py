"""Prices per GPU that clouds and sellers ask, which replace the usual prices of the
catalog."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Final

from corral.catalog.carbon import electricity_usd_per_kwh
from corral.catalog.devices import Device, device
from corral.catalog.economics import Assumption, assumptions
from corral.catalog.prices import PriceList
from corral.domain.errors import NotFound
from corral.plan.text import brief

# whose prices catalog/data/economics.csv has, with their low and high
PRICED: Final = "h100-sxm"
SPREAD: Final = (
    # of 21 types with a price on demand, 18 are within it of an H100's by bandwidth
    2.35
)
# assumed: so far a contract is from its region's mean price, either way
CONTRACTS: Final = 0.25
LIKE: Final = "an H100's"  # prefix of the source of an estimated price
CLOUDS: Final = {"google": "TPUs", "aws": "Trainium"}


def of_market(
    gpu: str, market: PriceList, *, years: float, cloud: str = ""
) -> dict[str, Assumption]:
    """Return, by name, the assumptions for this GPU that the price list gives better
    than the catalog.

    The price on demand is the median of the clouds' offers, with their lowest and
    highest. Discounts come from the clouds that list both prices. If only the price of
    a single GPU is known, the price of a server is scaled from it by the ratio for an
    H100. Missing prices are those of an H100, scaled by memory bandwidth. `cloud`
    restricts the offers to that cloud.

    Raises: NotFound if that cloud does not rent out the GPU.
    """
    known_assumptions, about = assumptions(), device(gpu)
    offers = [rent.usd_per_gpu_hour for rent in market.current(about.name, cloud=cloud)]
    if cloud and not offers:
        known_clouds = [rent.cloud for rent in market.rent(about.name)]
        raise NotFound(
            f"price of {about.name} at the cloud",
            cloud,
            known_clouds,
            see="corral plan prices",
        )
    market_terms: dict[str, Assumption] = {}
    if offers:
        source = (
            f"the median of {len(offers)} clouds" if len(offers) > 1 else "one cloud"
        )
        market_terms["on_demand"] = _assumption_from_prices(
            known_assumptions["on_demand"], offers, f"{source}: corral plan prices"
        )
    terms = ("reserved_3y", "reserved_1y") if years >= 3 else ("reserved_1y",)
    for name, kinds in (("reserved_discount", terms), ("spot_discount", ("spot",))):
        off = next(
            (
                discounts
                for kind in kinds
                if (discounts := _discounts(about, market, kind, cloud))
            ),
            [],
        )
        if off:
            market_terms[name] = _assumption_from_prices(
                known_assumptions[name], off, "the same clouds: corral plan prices"
            )
    market_terms.update(
        (assumption.name, assumption)
        for assumption in _server_assumptions(about, market, known_assumptions)
    )
    if missing := untold(about, market):
        like = of_market(PRICED, market, years=years)
        market_terms |= {
            name: _by_bandwidth(like.get(name, known_assumptions[name]), about)
            for name in missing
        }
    return market_terms


def untold(about: Device, market: PriceList) -> tuple[str, ...]:
    """Return the names of the price assumptions that the price list does not cover for
    this GPU."""
    if about.name == PRICED:
        return ()
    sold = ("server_per_gpu",) if _per_gpu(about, market) is None else ()
    return sold if market.rent(about.name) else (*sold, "on_demand")


def rented_only(about: Device) -> str:
    """Return a note for a device that its cloud only rents out; "" for all others."""
    return CLOUDS.get(about.vendor.lower(), "")


def electricity(region: str) -> Assumption:
    """Return the price of a kWh for a large customer in the region, with a range
    because contracts differ.

    Raises: NotFound for an unknown region, SpecInvalid for one without a price.
    """
    usd, source = electricity_usd_per_kwh(region)
    low_usd, high_usd = (1 - CONTRACTS) * usd, (1 + CONTRACTS) * usd
    return replace(
        assumptions()["kwh"], value=usd, low=low_usd, high=high_usd, source=source
    )


def _by_bandwidth(one: Assumption, about: Device) -> Assumption:
    times = about.memory_bytes_per_s / device(PRICED).memory_bytes_per_s
    usd = one.value * times
    source = f"{LIKE} {brief(one.value)} times {times:.2f} for the memory's bandwidth"
    return replace(one, value=usd, low=usd / SPREAD, high=usd * SPREAD, source=source)


def _discounts(about: Device, market: PriceList, kind: str, cloud: str) -> list[float]:
    """Return each cloud's discount against its own price on demand; surcharges are left
    out."""
    full_prices = {
        rent.cloud: rent.usd_per_gpu_hour
        for rent in market.current(about.name, cloud=cloud)
    }
    offers = market.current(about.name, kind, cloud)
    off = [
        1 - offer.usd_per_gpu_hour / full_prices[offer.cloud]
        for offer in offers
        if offer.cloud in full_prices
    ]
    return [share for share in off if 0 <= share < 1]


def _server_assumptions(
    about: Device, market: PriceList, known: Mapping[str, Assumption]
) -> Iterator[Assumption]:
    usual = known["server_per_gpu"]
    server_price = _per_gpu(about, market)
    if server_price is not None:
        usd, source = server_price
        factor = usd / usual.value
        yield replace(
            usual,
            value=usd,
            low=usual.low * factor,
            high=usual.high * factor,
            source=source,
        )


def _per_gpu(about: Device, market: PriceList) -> tuple[float, str] | None:
    """Return a server's price in USD per GPU, and the source of the price. None if the
    list has no price."""
    if (server_sale := market.sale(about.name, "server")) is not None:
        return server_sale.usd / about.node_gpus, server_sale.source
    sale = market.sale(about.name, "gpu") or market.sale(about.name, "used_gpu")
    server, alone = market.sale(PRICED, "server"), market.sale(PRICED, "gpu")
    if sale is None or server is None or alone is None:
        return None
    price_ratio = server.usd / device(PRICED).node_gpus / alone.usd
    used_suffix = ", used" if sale.what == "used_gpu" else ""
    return (
        sale.usd * price_ratio,
        f"{sale.source}; {sale.usd:,.0f} for one{used_suffix}, times {price_ratio:.2f}",
    )


def _assumption_from_prices(
    usual: Assumption, seen: list[float], source: str
) -> Assumption:
    """Return the median of the `seen` prices as an assumption with a range. With at
    most two prices, the range is at least as wide as that of the `usual` assumption."""
    value = median(seen)
    spread = (usual.low / usual.value, usual.high / usual.value)
    lower_bound, upper_bound = (
        min(*seen, value * spread[0]),
        max(*seen, value * spread[1]),
    )
    if len(seen) > 2:
        lower_bound, upper_bound = min(seen), max(seen)
    if usual.unit.startswith("share"):
        upper_bound = min(upper_bound, 0.95)
    return replace(
        usual, value=value, low=lower_bound, high=max(upper_bound, value), source=source
    )
