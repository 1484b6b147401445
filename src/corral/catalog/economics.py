"""Assumed costs of owning and renting GPUs, each with a low and a high value."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from typing import Final

from corral.catalog.facts import table
from corral.domain.errors import NotFound, SpecInvalid

SEE: Final = "corral plan catalog economics"
MOST: Final = 1e9  # of any assumption: what is beyond is a slip
SAID: Final = "as you set it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One assumption about costs. `low` and `high`: the bounds of its likely value;
    both equal `value` if the value is known."""

    name: str
    title: str
    value: float
    low: float
    high: float
    unit: str
    source: str
    date: date | None

    @property
    def is_known(self) -> bool:
        return self.low == self.high


@cache
def assumptions() -> Mapping[str, Assumption]:
    """Return all assumptions by name, in the order of the file."""
    return {
        name: Assumption(
            name=name,
            title=facts["title"].value,
            value=facts["value"].number,
            low=facts["low"].number,
            high=facts["high"].number,
            unit=facts["value"].unit,
            source=facts["value"].source,
            date=facts["value"].date,
        )
        for name, facts in table("economics").items()
    }


def assume(
    said: Mapping[str, float], better: Mapping[str, Assumption] | None = None
) -> dict[str, Assumption]:
    """Return all assumptions, with the caller's values in place of the catalog's.

    `better`: assumptions that replace the catalog's, such as the prices of one GPU. The
    caller's values replace these as well.

    Raises: NotFound with the nearest name, SpecInvalid for a number that is out of
    bounds.
    """
    known_assumptions = {**assumptions(), **(better or {})}
    for name, value in said.items():
        if name not in known_assumptions:
            raise NotFound("assumption", name, list(known_assumptions), see=SEE)
        _validate_assumption(known_assumptions[name], value)
        known_assumptions[name] = replace(
            known_assumptions[name],
            value=value,
            low=value,
            high=value,
            source=SAID,
            date=None,
        )
    return known_assumptions


def _validate_assumption(one: Assumption, value: float) -> None:
    is_share = one.unit.startswith("share")
    if not 0 <= value <= MOST or (is_share and value >= 1):
        bound_text = (
            " to less than 1, for example 0.2 for 20 %"
            if is_share
            else f" to {MOST:,.0f}"
        )
        raise SpecInvalid(
            f"{one.name} cannot be {value:g}", hint=f"give a number from 0{bound_text}"
        )
    if one.name == "pue" and value < 1:
        raise SpecInvalid(
            f"pue cannot be {value:g}",
            hint="give at least 1: power of the site over that of the machines",
        )
