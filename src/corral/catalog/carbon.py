"""Carbon emissions and price of a kWh by region, and the power use for cooling of data
centres."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from corral.catalog.facts import Facts, subject, table
from corral.domain.errors import SpecInvalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A country, a state, or the region of a cloud in one of these; the values are for
    a year.

    `electricity_usd_per_kwh`: the price for a large customer; None if the catalog has
    no source for it.
    """

    name: str
    title: str
    carbon_g_per_kwh: float
    electricity_usd_per_kwh: float | None


@cache
def region(name: str) -> Region:
    """Return the region of that name, for example fr, France, us-tx, Texas or
    eu-north-1.

    Raises: NotFound, with the nearest name.
    """
    facts = subject(
        "region",
        name,
        _regions_with_quantity("carbon"),
        region_aliases(),
        listed="carbon",
    )
    price = facts.get("electricity")
    return Region(
        name=facts["title"].subject,
        title=facts["title"].value,
        carbon_g_per_kwh=facts["carbon"].number,
        electricity_usd_per_kwh=price.number if price else None,
    )


def electricity_usd_per_kwh(name: str) -> tuple[float, str]:
    """Return the electricity price for a large customer of that region, and the source
    of the price.

    Raises: NotFound, with the nearest region; SpecInvalid for a region without a price.
    """
    known_region = region(name)
    if known_region.electricity_usd_per_kwh is None:
        priced = sorted(
            region_name
            for region_name, facts in _regions_with_quantity("carbon").items()
            if "electricity" in facts
        )
        raise SpecInvalid(
            f"the catalog has no price of electricity in {known_region.title}",
            hint=f"set kwh yourself, or choose one of the regions {', '.join(priced)}",
        )
    return known_region.electricity_usd_per_kwh, table("carbon")[known_region.name][
        "electricity"
    ].source


def usual_pue() -> Mapping[str, float]:
    """Return the power usage effectiveness (PUE) by kind of data centre: watts of the
    data centre for each watt of its machines."""
    return {
        facts["title"].value: facts["pue"].number
        for facts in _regions_with_quantity("pue").values()
    }


def region_aliases() -> dict[str, str]:
    """Map the other names of regions, including their titles, to the catalog's names."""
    name_by_alias: dict[str, str] = {}
    for name, facts in _regions_with_quantity("carbon").items():
        alias_names = facts["aliases"].value.split(";") if "aliases" in facts else []
        name_by_alias |= dict.fromkeys((*alias_names, facts["title"].value), name)
    return name_by_alias


def _regions_with_quantity(quantity: str) -> Facts:
    return {name: facts for name, facts in table("carbon").items() if quantity in facts}
