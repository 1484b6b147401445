"""Carbon and price of a kWh by region, and the share of cooling."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from corral.catalog.facts import Facts, subject, table
from corral.domain.errors import SpecInvalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A country, a state, or a cloud's region in one of these, over a year.

    `electricity_usd_per_kwh`: of a large customer; None where the catalog has no source
    for it.
    """

    name: str
    title: str
    carbon_g_per_kwh: float
    electricity_usd_per_kwh: float | None


@cache
def region(name: str) -> Region:
    """The region of that name: fr, France, us-tx, Texas, eu-north-1.

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
    """Return the price for a large customer of that region, and its source.

    Raises: NotFound, with the nearest region; SpecInvalid for one without a price.
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
            hint=f"say it yourself; it has those of {', '.join(priced)}",
        )
    return known_region.electricity_usd_per_kwh, table("carbon")[known_region.name][
        "electricity"
    ].source


def usual_pue() -> Mapping[str, float]:
    """Return the power use of a data centre for each watt of its machines, by kind of
    data centre."""
    return {
        facts["title"].value: facts["pue"].number
        for facts in _regions_with_quantity("pue").values()
    }


def region_aliases() -> dict[str, str]:
    """Other names of regions, their titles among them, to their own."""
    name_by_alias: dict[str, str] = {}
    for name, facts in _regions_with_quantity("carbon").items():
        alias_names = facts["aliases"].value.split(";") if "aliases" in facts else []
        name_by_alias |= dict.fromkeys((*alias_names, facts["title"].value), name)
    return name_by_alias


def _regions_with_quantity(quantity: str) -> Facts:
    return {name: facts for name, facts in table("carbon").items() if quantity in facts}
