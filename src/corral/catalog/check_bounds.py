"""Limits that an active check of a node must reach, from checks.csv and the data sheets
of devices."""

from dataclasses import dataclass
from functools import cache

from corral.catalog.devices import device
from corral.catalog.facts import table
from corral.domain.active_checks import CheckKind
from corral.domain.errors import NotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckBounds:
    """Lower limits of a measurement, as shares of an expected value; None if the
    measurement is not compared with that value.

    `least`: share of the data sheet's value. `own`: share of the median of the node's
    own earlier results, once there are `own_results` of them. `fleet`: share of the
    median of other nodes' results.
    """

    least: float | None
    own: float | None
    fleet: float | None
    own_results: int


@cache
def bounds_of(kind: CheckKind) -> CheckBounds:
    row = table("checks").get(kind, {})

    def share(name: str) -> float | None:
        return row[name].number if name in row else None

    return CheckBounds(
        least=share("least_share"),
        own=share("own_share"),
        fleet=share("fleet_share"),
        own_results=round(table("checks")["results"]["own_results"].number),
    )


def most_clock_seconds() -> float:
    """Return by how many seconds a node's clock may differ from the head's clock at
    most."""
    return table("checks")["clock"]["most_seconds"].number


@cache
def rated(kind: CheckKind, gpu_type: str) -> float | None:
    """Return a GPU's data sheet rate for what the check measures, in bytes/s; None if
    unknown."""
    try:
        rated_device = device(gpu_type)
    except NotFound:
        return None
    match kind:
        case CheckKind.MEMORY:
            return rated_device.memory_bytes_per_s
        case CheckKind.ALL_REDUCE:
            return rated_device.scale_up.bytes_per_s
        case CheckKind.LINK:
            return rated_device.fabric.bytes_per_s
    return None
