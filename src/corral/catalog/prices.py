"""Prices of GPUs to rent and to buy: dated lists, which users may replace by their own."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from statistics import median
from typing import Final

from corral.catalog.devices import device
from corral.catalog.facts import COLUMNS, Fact, by_subject, read_facts, table
from corral.domain.errors import NotFound, SpecInvalid

# of rent, USD a GPU-hour
KINDS: Final = ("on_demand", "reserved_1y", "reserved_3y", "spot")
# USD for one, or for a server full of them
SALES: Final = ("gpu", "server", "used_gpu")
HYPERSCALERS: Final = frozenset({"aws", "aws-blocks", "azure", "gcp", "oci"})
MOST_AGE: Final = timedelta(days=365)  # before the newest price of that GPU and kind
BOUGHT: Final = "buy"  # the source of a price to buy, where there is no rent
ABOUT: Final = ("instance", "region")
RENT_UNIT: Final = "USD a GPU-hour"
SALE_UNIT: Final = "USD"
EXAMPLE: Final = f"aws:h100-sxm,on_demand,3.10,{RENT_UNIT},our contract,2026-10-01"
FORM: Final = (
    f"write CSV with the columns {','.join(COLUMNS)}: {EXAMPLE}; for a complete list run: "
    "corral plan prices --csv"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rent:
    """Price of one GPU-hour of a device at one cloud. `kind`: on demand, reserved or
    spot, as in KINDS."""

    cloud: str
    device: str
    kind: str
    usd_per_gpu_hour: float
    instance: str
    region: str
    source: str
    date: date


@dataclass(frozen=True, slots=True, kw_only=True)
class Sale:
    """Purchase price of one GPU, new or used, or of a server with all its GPUs."""

    device: str
    what: str
    usd: float
    source: str
    date: date


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    rents: tuple[Rent, ...]
    sales: tuple[Sale, ...]

    def rent(
        self, device: str, kind: str = "on_demand", cloud: str = ""
    ) -> tuple[Rent, ...]:
        """Return the offers for renting a device, the cheapest first; only those of one
        cloud, if `cloud` is given."""
        fit = [
            rent for rent in self.rents if rent.device == device and rent.kind == kind
        ]
        rents = [rent for rent in fit if cloud in ("", rent.cloud)]
        return tuple(sorted(rents, key=lambda one: (one.usd_per_gpu_hour, one.cloud)))

    def current(
        self, device: str, kind: str = "on_demand", cloud: str = ""
    ) -> tuple[Rent, ...]:
        """Return the offers for renting a device, the cheapest first, without those
        that are a year older than the newest one."""
        offers = self.rent(device, kind, cloud)
        newest_date = max((offer.date for offer in offers), default=date.min)
        return tuple(offer for offer in offers if newest_date - offer.date <= MOST_AGE)

    def typical(self, device: str, kind: str = "on_demand") -> float:
        """Return the median price of the clouds' current offers, in USD a GPU-hour.

        Raises: NotFound, with the devices that have such a price.
        """
        offers = self.current(device, kind)
        if not offers:
            known_devices = sorted(
                {rent.device for rent in self.rents if rent.kind == kind}
            )
            raise NotFound(
                f"price of the kind {kind} for",
                device,
                known_devices,
                see="corral plan catalog prices",
            )
        return median(offer.usd_per_gpu_hour for offer in offers)

    def sale(self, device: str, what: str = "gpu") -> Sale | None:
        """Return the newest price for buying the device; None without one."""
        fit = [
            sale for sale in self.sales if (sale.device, sale.what) == (device, what)
        ]
        return max(fit, key=lambda one: one.date, default=None)

    def lines(self) -> Iterator[tuple[str, ...]]:
        """Return the rows of the list in the form that `read_prices` reads, without the
        header. Of a rent offer, only the price is kept."""
        for rent in self.rents:
            usd, day = f"{rent.usd_per_gpu_hour:.10g}", rent.date.isoformat()
            yield (
                f"{rent.cloud}:{rent.device}",
                rent.kind,
                usd,
                RENT_UNIT,
                rent.source,
                day,
            )
        for sale in self.sales:
            day = sale.date.isoformat()
            yield (
                f"{BOUGHT}:{sale.device}",
                sale.what,
                f"{sale.usd:.10g}",
                SALE_UNIT,
                sale.source,
                day,
            )

    def or_else(self, other: "PriceList") -> "PriceList":
        """Return a list of all prices of this list, and of those of `other` for which
        this list has no price. A user's own list thus takes precedence."""
        listed_rents = {(rent.cloud, rent.device, rent.kind) for rent in self.rents}
        sold = {(sale.device, sale.what) for sale in self.sales}
        rents = (
            rent
            for rent in other.rents
            if (rent.cloud, rent.device, rent.kind) not in listed_rents
        )
        sales = (sale for sale in other.sales if (sale.device, sale.what) not in sold)
        return PriceList(rents=(*self.rents, *rents), sales=(*self.sales, *sales))


def is_hyperscaler(cloud: str) -> bool:
    """Return whether the cloud is one of the large clouds, whose list prices form a
    class of their own."""
    return cloud in HYPERSCALERS


@cache
def prices() -> PriceList:
    """Return the price list of the catalog."""
    return _price_list_of_facts(
        fact for facts in table("prices").values() for fact in facts.values()
    )


def read_prices(lines: Iterable[str]) -> PriceList:
    """Parse prices in the form of catalog/data/prices.csv; the subject of a row is
    CLOUD:GPU, or buy:GPU.

    Raises: SpecInvalid, with the line that is not valid; NotFound for an unknown GPU.
    """
    try:
        facts = read_facts(lines)
        by_subject(facts)
        return _price_list_of_facts(facts)
    except ValueError as error:
        raise SpecInvalid(
            f"the price list is not valid: {error}",
            hint=FORM,
        ) from error


def _price_list_of_facts(facts: Iterable[Fact]) -> PriceList:
    rents: list[Rent] = []
    sales: list[Sale] = []
    listed = list(facts)
    about = {
        (fact.subject, fact.quantity): fact.value
        for fact in listed
        if fact.quantity in ABOUT
    }
    for fact in listed:
        cloud, _, name = fact.subject.partition(":")
        if not name:
            raise ValueError(f"{fact.subject!r} does not have the form CLOUD:GPU")
        if fact.quantity in ABOUT:
            continue
        if fact.quantity not in (SALES if cloud == BOUGHT else KINDS):
            raise ValueError(
                f"{fact.subject} has an unknown kind of price, {fact.quantity}"
            )
        if not 0 < fact.number < float("inf"):
            raise ValueError(
                f"{fact.quantity} of {fact.subject} must be above 0, not {fact.value}"
            )
        if cloud == BOUGHT:
            sales.append(_sale_from_fact(fact, device(name).name))
        else:
            rents.append(_rent_from_fact(fact, cloud, device(name).name, about))
    return PriceList(rents=tuple(rents), sales=tuple(sales))


def _rent_from_fact(
    fact: Fact, cloud: str, device: str, about: dict[tuple[str, str], str]
) -> Rent:
    return Rent(
        cloud=cloud,
        device=device,
        kind=fact.quantity,
        usd_per_gpu_hour=fact.number,
        instance=about.get((fact.subject, "instance"), ""),
        region=about.get((fact.subject, "region"), ""),
        source=fact.source,
        date=fact.date,
    )


def _sale_from_fact(fact: Fact, device: str) -> Sale:
    return Sale(
        device=device,
        what=fact.quantity,
        usd=fact.number,
        source=fact.source,
        date=fact.date,
    )
