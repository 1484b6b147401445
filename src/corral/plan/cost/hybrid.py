"""Split of a demand: GPUs to own, and GPUs to rent for the peaks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Final

from corral.domain.errors import SpecInvalid
from corral.plan.cost.bills import MONTH_HOURS, PriceAssumptions, check_demand

YEAR_HOURS: Final = 12 * MONTH_HOURS
NOTHING: Final = "the demand contains no GPU-hours"
FORM: Final = "give GPUs and hours, for example 64:2000 16:6760"
Demand = tuple[tuple[float, float], ...]  # (GPUs, hours or any weight), in any order


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A number of owned GPUs, and the total cost if the other GPUs are rented."""

    owned: int
    usd: float
    owned_share: float  # of the GPU-hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """The cheapest mix of owned and rented GPUs. `tried`: every number of owned GPUs
    that can be the cheapest, from zero to the highest demand."""

    kind: str
    best: Mix
    all_own: Mix
    all_rent: Mix
    tried: tuple[Mix, ...]


def duration_curve(loads: Sequence[float]) -> Demand:
    """Return how long each load lasted, highest load first. `loads`: GPUs in use at
    equal time steps."""
    return tuple(
        sorted(((load, float(n)) for load, n in Counter(loads).items()), reverse=True)
    )


def peak_and_use(demand: Demand) -> tuple[int, float]:
    """Return the most GPUs in use at the same time in a year, and the share of all
    hours of these GPUs that is used.

    Raises: SpecInvalid for an empty or impossible demand.
    """
    check_demand(demand)
    peak = ceil(max((gpus for gpus, _ in demand), default=0.0))
    hours = max(YEAR_HOURS, sum(hours for _, hours in demand))
    work = sum(gpus * hours for gpus, hours in demand)
    if work <= 0:
        raise SpecInvalid(NOTHING, hint=FORM)
    return peak, work / (peak * hours)


def best_mix(
    prices: PriceAssumptions, demand: Demand, kind: str = "on demand"
) -> Hybrid:
    """Return the cheapest mix of owned and rented GPUs, in whole nodes.

    Between two loads of the demand, the cost is linear in the number of owned GPUs,
    except for the step at the first node. Only whole nodes adjacent to a load can
    therefore be best. All of them are tried.

    Raises: SpecInvalid if nothing is requested.
    """
    hours = sum(weight for _, weight in demand)
    peak = max((gpus for gpus, _ in demand), default=0.0)
    if hours <= 0 or peak <= 0 or min(min(pair) for pair in demand) < 0:
        raise SpecInvalid(NOTHING, hint=FORM)
    shares = tuple((gpus, weight / hours) for gpus, weight in demand)
    node = prices.node_gpus
    work = sum(gpus * share for gpus, share in shares)
    able = {0, node, ceil(peak / node) * node}
    for gpus, _ in shares:
        able |= {floor(gpus / node) * node, ceil(gpus / node) * node}
    tried = tuple(
        Mix(
            owned=owned,
            usd=prices.mix(owned, shares, kind).usd,
            owned_share=sum(min(gpus, owned) * share for gpus, share in shares) / work,
        )
        for owned in sorted(able)
    )
    return Hybrid(
        kind=kind,
        best=min(tried, key=lambda mix: mix.usd),
        all_own=tried[-1],
        all_rent=tried[0],
        tried=tried,
    )
