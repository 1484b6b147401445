"""Quantities: "500m", "2Gi".
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""

import re
from fractions import Fraction
from typing import Final

from tests.kube.kinds import Json

_FORM: Final = re.compile(r"(\d+(?:\.\d+)?)(m|k|[KMGTPE]i?|[eE]\d+)?")
_UNITS: Final = {"": Fraction(1), "m": Fraction(1, 1000), "k": Fraction(1000)} | {
    f"{letter}{end}": Fraction(base ** (power + 1))
    for power, letter in enumerate("KMGTPE")
    for end, base in (("", 1000), ("i", 1024))
}


def amount(text: object) -> Fraction:
    """Raises: ValueError for what is no quantity."""
    found = _FORM.fullmatch(str(text))
    if found is None:
        raise ValueError(f"quantities must match the regular expression: {text!r}")
    unit = found[2] or ""
    if unit[:1] in ("e", "E") and unit[1:].isdecimal():
        return Fraction(found[1]) * Fraction(10 ** int(unit[1:]))
    return Fraction(found[1]) * _UNITS[unit]


def asked_by(pod: Json) -> dict[str, Fraction]:
    """What the scheduler counts: the sum of requests; a limit alone is a request
    too."""
    total: dict[str, Fraction] = {}
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        for name, value in {
            **resources.get("limits", {}),
            **resources.get("requests", {}),
        }.items():
            total[name] = total.get(name, Fraction(0)) + amount(value)
    return total
