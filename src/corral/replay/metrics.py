"""The numbers of an outcome, in the units that their names end in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from corral.replay.replay import Outcome

SHORTEST_SECONDS: Final = 10.0  # bounded slowdown counts shorter jobs as so long (Feitelson 1998)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """`jct`: from submission to end. `wait`: that less the job's own run time. `slowdown`: bounded
    by 10 s. `utilisation`: GPU time held over all GPU time, from the first submission to the last.
    `lost_gpu_s`: GPU-seconds in which restarted jobs only restored themselves."""

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


def metrics_of(outcome: Outcome) -> Metrics:
    """Raises: ValueError when there was no job."""
    work = outcome.workload
    if not work.submits:
        raise ValueError("no job, no numbers")
    jct = [end - begun for end, begun in zip(outcome.ended, work.submits, strict=True)]
    slowdown = [
        max(1.0, took / max(SHORTEST_SECONDS, own))
        for took, own in zip(jct, work.durations, strict=True)
    ]
    window = (work.submits[-1] - work.submits[0]) * sum(outcome.nodes)
    return Metrics(
        jobs=len(jct),
        **_spread("jct", jct, "_s"),
        **_spread("wait", outcome.waits, "_s"),
        **_spread("slowdown", slowdown, ""),
        utilisation=outcome.held_gpu_seconds / window if window else 0.0,
        preemptions=outcome.preemptions,
        lost_gpu_s=outcome.lost_gpu_seconds,
    )


def _spread(name: str, values: Sequence[float], unit: str) -> dict[str, float]:
    ranked = sorted(values)
    return {
        f"{name}_mean{unit}": sum(values) / len(values),
        **{f"{name}_p{share}{unit}": quantile(ranked, share / 100) for share in (50, 90, 99)},
        f"{name}_max{unit}": ranked[-1],
    }


def quantile(ranked: Sequence[float], share: float) -> float:
    """Linear between the two nearest ranks, as numpy's default is."""
    at = share * (len(ranked) - 1)
    low = int(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (at - low)
