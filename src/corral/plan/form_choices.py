"""The catalog's names for fields of requests, which forms offer as choices."""

from collections.abc import Callable, Mapping
from typing import Final

from corral.catalog.devices import devices
from corral.catalog.equipment import networks
from corral.catalog.facts import table
from corral.catalog.model_names import models
from corral.catalog.precisions import Precision
from corral.catalog.prices import KINDS, prices

_NAMES: Final[Mapping[str, Callable[[], list[str]]]] = {
    "model": lambda: [model.name for model in models()],
    "gpu": lambda: [device.name for device in devices()],
    "precision": lambda: [precision.value for precision in Precision],
    "kv_precision": lambda: [precision.value for precision in Precision],
    "library": lambda: [name for name in table("software") if name != "any"],
    "fabric": lambda: list(networks()),
    "engine": lambda: [name for name in table("engines") if name != "default"],
    "region": lambda: [
        name for name, facts in table("carbon").items() if "carbon" in facts
    ],
    "cloud": lambda: sorted({rent.cloud for rent in prices().rents}),
    "price": lambda: list(KINDS),
}


def names_of(field: str) -> list[str]:
    """Return the values that a field of that name accepts; none if the catalog cannot
    list them."""
    return _NAMES[field]() if field in _NAMES else []
