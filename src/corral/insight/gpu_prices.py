"""Price of a GPU-hour: from the label of its node, else from the budget of its queue,
else from the catalog."""

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
    """Price of a GPU-hour. If `is_list`, it is the list price of cloud providers in
    USD; otherwise it is the cluster's own price in the cluster's currency."""

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
    """Return the price of a GPU-hour; None if none is known.

    Args:
        path: the queue and its parents, from the top down; the rates of the nearest
            queue with rates count.
        pretend: the GPU is a pretend GPU, for which the catalog has no price.
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
    """Return the median of the clouds' prices on demand, in USD; None if the catalog
    has none."""
    try:
        return prices().typical(device(gpu_type).name)
    except NotFound:
        return None
