"""Numbers as people type them: 8192, 1e6, 15T, 70B."""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, get_args

import cyclopts
from cyclopts import Token

TIMES: Final = {"": 0, "k": 3, "m": 6, "b": 9, "t": 12}  # powers of ten
LONGEST: Final = 300  # digits; what is longer is no number of anything
_FORM: Final = re.compile(
    r"([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d{1,4})?)([kmbt]?)", re.I | re.A
)
# the planner reports the error
_ODD: Final = re.compile(r"[+-]?(nan|inf|infinity)", re.I)


def counted(kind: Any, tokens: Sequence[Token]) -> Any:
    """Convert the text of an option to a value of the type `kind`. A number may have a
    suffix, such as 15T.

    Raises: ValueError for a value that is not a number, or not a number of that kind.
    """
    numbers = {int, float} & {kind, *get_args(kind)}
    if not numbers:
        return cyclopts.convert(kind, tokens)
    decimal = number(tokens[0].value)
    if float in numbers:
        return float(decimal)
    if not decimal.is_finite() or decimal != decimal.to_integral_value():
        raise ValueError(f"{tokens[0].value} is not a whole number.")
    return int(decimal)


def number(word: str) -> Decimal:
    """Parse a number such as 8192, 0.9, 1e6, 70B or 15T. Raises: ValueError if the word
    is not a number, or is too large or too small."""
    if _ODD.fullmatch(word):
        return Decimal(word)
    match = _FORM.fullmatch(word)
    if match is None:
        raise ValueError(
            f"{word!r} is not a number; write for example 8192, 0.9, 1e6, 70B or 15T."
        )
    exact = Decimal(match[1]).scaleb(TIMES[match[2].lower()])
    if abs(exact.adjusted()) > LONGEST:
        raise ValueError(f"{word} is too large or too small.")
    return exact
