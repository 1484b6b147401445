"""Metrics of GPU usage: GPU-seconds by outcome, and the useful share of GPU-seconds
(0055)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from corral.api.metrics.families import MetricFamily, counter, gauge
from corral.domain.ids import QueueName
from corral.domain.ledger import AMOUNTS, UsageAmounts
from corral.insight.reports import (
    UsageReport,
    ettr,
    mttf_seconds,
    mttr_seconds,
    other_gpu_seconds,
    slow_gpu_seconds,
    useful_gpu_seconds,
)

CAME_OF: Final = {  # what an attempt's seconds are, each of one kind
    "useful": "useful",
    "start-up": "starting",
    "restores": "restoring",
    "hangs": "hung",
    "checkpoints": "saving",
    "failures": "failed",
    "preemptions": "preempted",
    "stops": "stopped",
}
DERIVED: Final[Mapping[str, Callable[[UsageAmounts], float]]] = {
    "useful": useful_gpu_seconds,
    "slow ranks": slow_gpu_seconds,
    "other": other_gpu_seconds,
}
_PERIOD: Final = "of jobs since yesterday (UTC)"
RELIABILITY: Final = (
    ("ettr_ratio", f"Effective training time ratio {_PERIOD}.", ettr),
    ("mttf_seconds", f"Mean time to failure {_PERIOD}.", mttf_seconds),
    (
        "mttr_seconds",
        f"Mean time from a failure to the next step {_PERIOD}.",
        mttr_seconds,
    ),
)
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
        if kind not in DERIVED
    ]
    spent += [
        ((row.name, kind), seconds_of(row.amounts))
        for row in report.rows
        for kind, seconds_of in DERIVED.items()
    ]
    yield gauge(
        "corral_queue_recent_gpu_seconds",
        "GPU-seconds held since yesterday (UTC), by outcome, running attempts included.",
        spent,
        ("queue", "kind"),
    )
    yield from _reliability(report)


def _reliability(report: UsageReport) -> Iterator[MetricFamily]:
    """Yield the effective training time ratio, and the mean times to failure and to
    repair, of the cluster and of each queue."""
    for name, about, value_of in RELIABILITY:
        whole = value_of(report.total)
        yield gauge(f"corral_{name}", about, [] if whole is None else [((), whole)])
        rows = [
            ((row.name,), value)
            for row in report.rows
            if (value := value_of(row.amounts)) is not None
        ]
        yield gauge(f"corral_queue_{name}", about, rows, ("queue",))


def _useful_share(one: UsageAmounts) -> float:
    """Return the useful share of the allocated GPU-seconds, at most 1 because clocks
    may differ slightly; -1 if none were allocated."""
    allocated = one.allocated_gpu_seconds
    return min(1.0, useful_gpu_seconds(one) / allocated) if allocated > 0 else -1.0
