"""Price of a GPU-hour: by the label of its node, by the budget of its queue, by the
catalog."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Final

from corral.catalog.devices import device
from corral.catalog.prices import prices
from corral.domain.errors import NotFound
from corral.domain.queue import Queue

PRICE_LABEL: Final = "price"  # of a node: money for an hour of one of its GPUs


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a GPU-hour. `is_list`: what clouds ask, in USD; else the cluster's own,
    in its currency."""

    amount: float
    is_list: bool = False

    @property
    def own(self) -> float:
        return 0.0 if self.is_list else self.amount

    @property
    def listed(self) -> float:
        return self.amount if self.is_list else 0.0


def hourly(
    labels: Mapping[str, str],
    gpu_type: str,
    path: Sequence[Queue],
    *,
    pretend: bool = False,
) -> Price | None:
    """Return the price of a GPU-hour; None where none is known.

    Args:
        path: the queue and those above it, from the top down; of those with rates the
            nearest counts.
        pretend: the catalog has no price for it.
    """
    labelled = _parse_price(labels.get(PRICE_LABEL, ""))
    if labelled is not None:
        return Price(labelled)
    for queue in reversed(path):
        if queue.budget is not None and queue.budget.rates:
            return Price(queue.budget.rate(gpu_type))
    catalog_price = None if pretend else _of_catalog(gpu_type)
    return None if catalog_price is None else Price(catalog_price, is_list=True)


def _parse_price(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and value >= 0 else None


@cache
def _of_catalog(gpu_type: str) -> float | None:
    """USD: the median of what clouds ask on demand."""
    try:
        return prices().typical(device(gpu_type).name)
    except NotFound:
        return None
