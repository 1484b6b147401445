"""Quantities of Kubernetes: 500m, 2Gi, 1e3.

Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

_FORM: Final = re.compile(r"([+-]?[0-9.]+)([numkKMGTPE]?i?|[eE][+-]?[0-9]+)", re.ASCII)
_SMALL: Final = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_LARGE: Final = "kMGTPE"


def quantity(text: str | None) -> Decimal:
    """Parse a quantity; None counts as 0. Raises: ValueError for a text that is not a
    quantity."""
    if text is None:
        return Decimal(0)
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a valid Kubernetes quantity")
    number, unit = Decimal(match[1]), match[2]
    if unit[:1] in ("e", "E") and len(unit) > 1 and unit != "Ei":
        return number * Decimal(10) ** int(unit[1:])
    if unit in _SMALL:
        return number * _SMALL[unit]
    if not unit:
        return number
    base = 1024 if unit.endswith("i") else 1000
    return number * Decimal(base) ** (_LARGE.index(unit[0].replace("K", "k")) + 1)


def millis(held: Mapping[str, str], name: str) -> int:
    """Return the amount of the resource `name` in `held`, in thousandths; 0 if it is
    missing. A fraction of a thousandth is dropped."""
    return int(quantity(held.get(name)) * 1000)


def whole(held: Mapping[str, str], name: str) -> int:
    return int(quantity(held.get(name)))
