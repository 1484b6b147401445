"""Failure rates of nodes in clusters, causes of the failures, and recovery times of
training runs."""

from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Final, Literal

from corral.catalog.facts import table

USUAL_GPUS: Final = 8  # of a node of every cluster whose failures are known


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFailures:
    """Failures of one cluster. `rate`: failures that ended a run, per 1,000 node-days.
    `failures`: their number; None if the source gives only a rate."""

    name: str
    title: str
    gpu: str
    architecture: str
    nodes: int
    rate: float
    failures: int | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingPart:
    """A part that fails. `share`: share of all failures that this part caused. `per`:
    whether there is one such part for each node, or one for each GPU."""

    name: str
    title: str
    share: float
    per: Literal["gpu", "node"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    """Failures per 1,000 days of a node of 8 GPUs. `usual`: the median of the clusters.
    `low` and `high`: the range over the clusters with known rates."""

    usual: float
    low: float
    high: float
    source: str


@cache
def seen() -> tuple[ClusterFailures, ...]:
    """Return all clusters with a known failure rate, in the order of the file."""
    return tuple(
        ClusterFailures(
            name=name,
            title=facts["title"].value,
            gpu=facts["gpu"].value,
            architecture=facts["architecture"].value,
            nodes=round(facts["nodes"].number),
            rate=facts["rate"].number,
            failures=round(facts["failures"].number) if "failures" in facts else None,
            source=facts["rate"].source,
        )
        for name, facts in table("failures").items()
    )


@cache
def failing_parts() -> tuple[FailingPart, ...]:
    """Return the share of failures that each part caused in the 54 days of the Llama 3
    training run; the shares sum to 1."""
    part_rows = table("failure_parts")
    total_count = sum(facts["count"].number for facts in part_rows.values())
    return tuple(
        FailingPart(
            name=name,
            title=facts["title"].value,
            share=facts["count"].number / total_count,
            per="gpu" if facts["per"].value == "gpu" else "node",
        )
        for name, facts in part_rows.items()
    )


def rate_of(architecture: str, *, without: str = "") -> FailureRate:
    """Return the expected failure rate of an architecture: the median of the clusters
    with this architecture, or of all clusters if fewer than two have it.

    The range covers all clusters, because age and care matter more than the type of
    GPU. `without`: name of a cluster to leave out, for validation.
    """
    cluster_failures = [cluster for cluster in seen() if cluster.name != without]
    same_architecture = [
        cluster for cluster in cluster_failures if cluster.architecture == architecture
    ]
    if len(same_architecture) < 2:
        same_architecture = cluster_failures
    rates = [cluster.rate for cluster in cluster_failures]
    return FailureRate(
        usual=median(cluster.rate for cluster in same_architecture),
        low=min(rates),
        high=max(rates),
        source="the middle of "
        + ", ".join(cluster.name for cluster in same_architecture),
    )


def recovery(name: str) -> float:
    """Return the usual value of an entry of recovery.csv, in the unit that the entry
    states: minutes, hours, bytes or GB/s."""
    return table("recovery")[name]["value"].number
