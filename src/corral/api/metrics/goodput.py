"""Metrics of GPU usage: GPU-seconds by outcome, and the useful share of GPU-seconds
(0055)."""

from collections.abc import Iterator, Mapping
from typing import Final

from corral.api.metrics.families import MetricFamily, counter, gauge
from corral.domain.ids import QueueName
from corral.domain.ledger import AMOUNTS, UsageAmounts
from corral.insight.reports import UsageReport, other_gpu_seconds

CAME_OF: Final = {  # what an attempt's seconds are, each of one kind
    "useful": "useful",
    "start-up": "starting",
    "checkpoints": "saving",
    "failures": "failed",
    "preemptions": "preempted",
    "stops": "stopped",
}
SENSED: Final = {name: name for name in ("measured", "used", "idle")}


def gpu_seconds(amounts: Mapping[QueueName, UsageAmounts]) -> Iterator[MetricFamily]:
    """Yield counters of the GPU-seconds that were recorded. An attempt's GPU-seconds
    are recorded when it ends, and those of the sensors each minute."""
    by_kind = ("queue", "kind")
    yield counter(
        "corral_gpu_seconds",
        "GPU-seconds of ended attempts, by outcome.",
        _gpu_second_rows(amounts, CAME_OF),
        by_kind,
    )
    yield counter(
        "corral_sensed_gpu_seconds",
        "GPU-seconds of held GPUs: measured by sensors, used (by utilisation), and idle.",
        _gpu_second_rows(amounts, SENSED),
        by_kind,
    )


def _gpu_second_rows(
    amounts: Mapping[QueueName, UsageAmounts], kinds: Mapping[str, str]
) -> Iterator[tuple[tuple[str, ...], float]]:
    column_by_kind = {
        kind: AMOUNTS.index(f"{name}_gpu_seconds") for kind, name in kinds.items()
    }
    for queue, amount in amounts.items():
        for kind, column_index in column_by_kind.items():
            yield (str(queue), kind), amount[column_index]


def goodput(report: UsageReport) -> Iterator[MetricFamily]:
    """Yield metrics of the GPU-seconds allocated today and yesterday (UTC). Running
    attempts count as if they ended well. A queue without allocations has no useful
    share."""
    rows = [
        ((row.name,), share)
        for row in report.rows
        if (share := _useful_share(row.amounts)) >= 0
    ]
    cluster_samples = (
        [((), share)] if (share := _useful_share(report.total)) >= 0 else []
    )
    about = "Useful share of the GPU-hours held since yesterday (UTC)"
    yield gauge("corral_goodput_ratio", f"{about}.", cluster_samples)
    yield gauge("corral_queue_goodput_ratio", f"{about}.", rows, ("queue",))
    spent = [
        ((row.name, kind), getattr(row.amounts, f"{name}_gpu_seconds"))
        for row in report.rows
        for kind, name in CAME_OF.items()
    ]
    other_rows = [
        ((row.name, "other"), other_gpu_seconds(row.amounts)) for row in report.rows
    ]
    yield gauge(
        "corral_queue_recent_gpu_seconds",
        "GPU-seconds held since yesterday (UTC), by outcome, running attempts included.",
        [*spent, *other_rows],
        ("queue", "kind"),
    )


def _useful_share(one: UsageAmounts) -> float:
    """Return the useful share of the allocated GPU-seconds, at most 1 because clocks
    may differ slightly; -1 if none were allocated."""
    allocated = one.allocated_gpu_seconds
    return min(1.0, one.useful_gpu_seconds / allocated) if allocated > 0 else -1.0
