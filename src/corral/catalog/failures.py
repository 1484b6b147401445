"""Failure rates of nodes in clusters, their causes, and the recovery times of runs."""

from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Final, Literal

from corral.catalog.facts import table

USUAL_GPUS: Final = 8  # of a node of every cluster whose failures are known


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFailures:
    """Failures of one cluster. `rate`: failures that ended a run, per 1,000 node-days.
    `failures`: the count; None if the source gives only a rate."""

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
    """`share` of all failures that this part made. `per`: whether a node has one of it,
    or each of its GPUs."""

    name: str
    title: str
    share: float
    per: Literal["gpu", "node"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    """Failures per 1,000 days of a node of 8 GPUs, and between what clusters have
    seen."""

    usual: float
    low: float
    high: float
    source: str


@cache
def seen() -> tuple[ClusterFailures, ...]:
    """All clusters whose rate is known, in the order of the file."""
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
    """Return the shares of failed parts in Llama 3's 54 days; they sum to 1."""
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
    that had it, or of all if fewer than two did. The band is that of all clusters: age
    and care matter more than the type of GPU. `without`: a cluster to leave out for
    validation."""
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
    """The usual value of what recovery.csv names: in minutes, hours, bytes or GB/s, as
    it says."""
    return table("recovery")[name]["value"].number
