"""Fair share: present and past use of a queue or a user, measured by the resource of
which it takes the largest share.

Past use decays: after a half-life it counts half. It is divided by the half-life's time
constant, which gives it the unit of present holdings (GPUs, cores, GiB), so that both
can be added. So of two queues that begin at the same time neither takes everything, and
a queue that has waited long comes first.
"""

from collections.abc import Mapping
from math import exp, expm1, log
from typing import Final, NamedTuple

_STEPS: Final = 1 << 20
RESOURCES: Final = 3  # GPUs, cores, GiB of memory: the places of an Amounts


class ResourceAmounts(NamedTuple):
    """Amounts of GPUs, cores and GiB, or of seconds of them."""

    gpus: float = 0.0
    cpus: float = 0.0
    gib: float = 0.0

    def in_steps(self) -> "ResourceAmounts":
        """Return the amounts rounded to multiples of 2^-20. Sums of such amounts are
        exact, so they do not depend on the order in which resources are taken and
        returned."""
        return ResourceAmounts(*(round(amount * _STEPS) / _STEPS for amount in self))

    def plus(self, other: "ResourceAmounts", times: float = 1.0) -> "ResourceAmounts":
        return ResourceAmounts(
            self.gpus + times * other.gpus,
            self.cpus + times * other.cpus,
            self.gib + times * other.gib,
        )


def constant_seconds(half_life_seconds: float) -> float:
    """Return the decay's time constant: what a steady use of 1 adds up to."""
    return half_life_seconds / log(2.0)


def decayed(amount: float, seconds: float, half_life_seconds: float) -> float:
    """Return what is left of an amount of use after this time. A negative time counts
    as zero."""
    return amount * exp(-max(0.0, seconds) / constant_seconds(half_life_seconds))


def accrued_seconds(seconds: float, half_life_seconds: float) -> float:
    """Return what a steady use of 1 over the last `seconds` is worth now, after decay.

    If that time is divided and each part is decayed to now, the parts add up to the
    same value.
    """
    constant = constant_seconds(half_life_seconds)
    return -constant * expm1(-max(0.0, seconds) / constant)


def dominant(used: ResourceAmounts, capacity: ResourceAmounts, weight: float) -> float:
    """Return the largest used share of any one resource, divided by the weight.

    Source: Ghodsi et al. 2011, Dominant Resource Fairness, NSDI, section 4.1, with
    weights.
    """
    largest_share = 0.0
    for resource_index in range(RESOURCES):
        if (
            capacity[resource_index] > 0
            and used[resource_index] > largest_share * capacity[resource_index]
        ):
            largest_share = used[resource_index] / capacity[resource_index]
    return largest_share / weight


def targets(
    weights: Mapping[str, float], parents: Mapping[str, str | None]
) -> dict[str, float]:
    """Return the share of the cluster that each queue is due by weight if all queues
    want as much as they can get.

    The shares of a queue's children sum to its own share, and those of the top queues
    to 1.
    """
    of_level: dict[str | None, float] = {}
    for name, parent in parents.items():
        of_level[parent] = of_level.get(parent, 0.0) + weights[name]
    target_shares: dict[str, float] = {}

    def target(name: str) -> float:
        if name not in target_shares:
            parent = parents[name]
            above = 1.0 if parent is None else target(parent)
            target_shares[name] = above * weights[name] / of_level[parent]
        return target_shares[name]

    return {name: target(name) for name in parents}
