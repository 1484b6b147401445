"""Allowed ranges of the numbers in a request, next to their types, and hints for
unknown names."""

import re
from dataclasses import dataclass, fields
from functools import cache
from math import inf
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from corral.domain.errors import SpecInvalid

_OPTION: Final = re.compile(r"--[a-z][a-z0-9-]*")


@dataclass(frozen=True, slots=True)
class NumberBound:
    """Allowed range of a number, from `least` to `most`, both included. `hint` suggests
    values, if the bounds alone do not make that clear."""

    least: float
    most: float
    hint: str = ""

    def holds(self, value: float) -> bool:
        """Return whether the value is within the bounds; a NaN is not."""
        return self.least <= value <= self.most

    @property
    def said(self) -> str:
        return self.hint or f"give a number from {self.least:g} to {self.most:,.15g}"


COUNT: Final = NumberBound(1, 1e6)
GPUS: Final = NumberBound(1, 1e7)
NODE_GPUS: Final = NumberBound(1, 1_024)
LENGTH: Final = NumberBound(1, 1e8)  # tokens of a sequence
TOKENS: Final = NumberBound(1, 1e16)  # of a whole run
PARAMETERS: Final = NumberBound(1, 1e16)
ABOVE: Final = NumberBound(0.001, 1e9)  # a time, a rate
DAYS: Final = NumberBound(0.001, 1e5)
USD: Final = NumberBound(0.001, 1e6)  # of a GPU-hour

Gpus = Annotated[int, GPUS]
Length = Annotated[int, LENGTH]
Above = Annotated[float | None, ABOVE]
Usd = Annotated[float | None, USD]


def check(request: Any) -> None:
    """Check that each number of a request is within its bounds. None means not given,
    and passes.

    Raises: SpecInvalid, with the option and its allowed values, for the first number
    out of bounds.
    """
    kind: type = type(request)
    for name, bound in bounds_of(kind).items():
        value = getattr(request, name)
        if value is not None and not bound.holds(value):
            raise SpecInvalid(
                f"{option(name)} cannot be {number_text(value)}", hint=bound.said
            )


@cache
def bounds_of(kind: type) -> dict[str, NumberBound]:
    """Return the bounds of a class's fields by name."""
    hints = get_type_hints(kind, include_extras=True)
    number_bounds = {name: _bound_of_hint(hint) for name, hint in hints.items()}
    return {name: bound for name, bound in number_bounds.items() if bound is not None}


def _bound_of_hint(hint: Any) -> NumberBound | None:
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((extra for extra in extras if isinstance(extra, NumberBound)), None)


def option(name: str) -> str:
    """Return the command line option for a request's field, as the planner's messages
    write it."""
    return f"--{name.replace('_', '-')}"


def as_fields(text: str, request: type) -> str:
    """Replace the options in the planner's messages by names of fields, for a program
    that calls the planner. For example: --ttft-p90 becomes ttft_p90."""
    names_by_option = {option(field.name): field.name for field in fields(request)}
    return _OPTION.sub(lambda found: names_by_option.get(found[0], found[0]), text)


def number_text(value: float) -> str:
    """Return a number for a message. Words stand for NaN, infinity and numbers above
    1e300."""
    if value != value:
        return "NaN"
    if abs(value) == inf:
        return "infinite"
    return f"{value:g}" if abs(value) < 1e300 else "larger than 1e300"
