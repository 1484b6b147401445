"""Metrics of a replay's outcome. The names of the metrics end in their units."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from corral.replay.array_replay import ReplayOutcome
from corral.replay.quantile import quantile

# bounded slowdown counts shorter jobs as this long (Feitelson 1998)
SHORTEST_SECONDS: Final = 10.0

SIZES: Final = (
    *((1, "1 GPU"), (4, "2 to 4"), (8, "5 to 8"), (16, "9 to 16"), (64, "17 to 64")),
    (float("inf"), "over 64"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Metrics of a replay. `jct` is the time from submission to end. `wait` is `jct`
    less the job's own run time. `slowdown` is bounded by 10 s. `utilisation` is the GPU
    time held divided by all GPU time, from the first submission to the last.
    `lost_gpu_s` counts GPU-seconds in which restarted jobs only restored their state,
    or whose work a failing node undid. `failures` counts the starts that a failing node
    cut short. `fragmentation` is the share of the GPU time free while jobs waited that
    was on partly used nodes."""

    jobs: int
    jct_mean_s: float
    jct_p50_s: float
    jct_p90_s: float
    jct_p99_s: float
    jct_max_s: float
    wait_mean_s: float
    wait_p50_s: float
    wait_p90_s: float
    wait_p99_s: float
    wait_max_s: float
    slowdown_mean: float
    slowdown_p50: float
    slowdown_p90: float
    slowdown_p99: float
    slowdown_max: float
    utilisation: float
    preemptions: int
    lost_gpu_s: float
    failures: int
    fragmentation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSubset:
    """Metrics of a subset of the jobs, such as the jobs of one queue or of one size
    class."""

    jobs: int
    gpu_hours: float
    jct_mean_s: float
    wait_mean_s: float
    wait_p50_s: float
    wait_p99_s: float
    wait_max_s: float
    slowdown_mean: float


def metrics_of(outcome: ReplayOutcome) -> Metrics:
    """Return the metrics of the outcome.

    Raises: ValueError if there was no job.
    """
    work = outcome.workload
    if not work.submits:
        raise ValueError("metrics need at least one job")
    jct, slowdown = _completion_times(outcome), _job_slowdowns(outcome)
    window = (work.submits[-1] - work.submits[0]) * sum(outcome.nodes)
    return Metrics(
        jobs=len(jct),
        **_distribution_stats("jct", jct, "_s"),
        **_distribution_stats("wait", outcome.waits, "_s"),
        **_distribution_stats("slowdown", slowdown, ""),
        utilisation=outcome.held_gpu_seconds / window if window else 0.0,
        preemptions=outcome.preemptions,
        lost_gpu_s=outcome.lost_gpu_seconds,
        failures=outcome.failures,
        fragmentation=outcome.fragmentation,
    )


def parts_of(outcome: ReplayOutcome, labels: Sequence[str]) -> dict[str, MetricsSubset]:
    """Return the metrics of the jobs of each label. `labels` has one entry for each
    job."""
    work, waits = outcome.workload, outcome.waits
    jct, slowdown = _completion_times(outcome), _job_slowdowns(outcome)
    rows: dict[str, list[int]] = {label: [] for label in dict.fromkeys(labels)}
    for row, label in enumerate(labels):
        rows[label].append(row)
    metrics_by_label = {}
    for label, own_rows in rows.items():
        ranked = sorted(waits[row] for row in own_rows)
        metrics_by_label[label] = MetricsSubset(
            jobs=len(own_rows),
            gpu_hours=sum(work.durations[row] * work.gpus[row] for row in own_rows)
            / 3_600,
            jct_mean_s=sum(jct[row] for row in own_rows) / len(own_rows),
            wait_mean_s=sum(ranked) / len(own_rows),
            wait_p50_s=quantile(ranked, 0.5),
            wait_p99_s=quantile(ranked, 0.99),
            wait_max_s=ranked[-1],
            slowdown_mean=sum(slowdown[row] for row in own_rows) / len(own_rows),
        )
    return metrics_by_label


def size_labels(gpus: Sequence[int]) -> list[str]:
    """Return the size class of each job, by the number of GPUs that it requests."""
    return [
        next(label for size_limit, label in SIZES if size <= size_limit)
        for size in gpus
    ]


def _completion_times(outcome: ReplayOutcome) -> list[float]:
    return [
        ended_at - submitted_at
        for ended_at, submitted_at in zip(
            outcome.ended, outcome.workload.submits, strict=True
        )
    ]


def _job_slowdowns(outcome: ReplayOutcome) -> list[float]:
    return [
        max(1.0, took / max(SHORTEST_SECONDS, own_seconds))
        for took, own_seconds in zip(
            _completion_times(outcome), outcome.workload.durations, strict=True
        )
    ]


def _distribution_stats(
    name: str, values: Sequence[float], unit: str
) -> dict[str, float]:
    ranked = sorted(values)
    return {
        f"{name}_mean{unit}": sum(values) / len(values),
        **{
            f"{name}_p{share}{unit}": quantile(ranked, share / 100)
            for share in (50, 90, 99)
        },
        f"{name}_max{unit}": ranked[-1],
    }
