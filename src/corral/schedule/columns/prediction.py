"""Predicted run time of a job from similar ended jobs of the same user, name and size.

Each group of similar jobs keeps a mean run time (`kin`), in which older jobs lose
weight. The most similar group with an ended job gives the prediction. No job runs
longer than its user's limit.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from corral.schedule.arrays.compiled import column, compiled
from corral.schedule.prediction import similar_jobs as formulas
from corral.schedule.prediction.similar_jobs import CIRCLES

_mean_after = compiled(formulas.mean_after)


class KinMeans(NamedTuple):
    """Mean run times of groups of similar jobs, from which run times are predicted.
    Each job belongs to one group in each circle; circle 0 has the most similar jobs.

    `group` maps job * CIRCLES + circle to a row of `mean` (seconds) and `ended` (number
    of jobs), or to -1 if the job has no group in that circle.
    """

    group: Any
    mean: Any
    ended: Any


def kin_of(jobs: int, groups: int) -> KinMeans:
    """Return empty mean run times for these jobs and groups; with 0 groups, nothing is
    predicted."""
    return KinMeans(
        group=column(jobs * CIRCLES if groups else 0, "int"),
        mean=column(groups, "float"),
        ended=column(groups, "int"),
    )


def enter_kin(kin: KinMeans, groups: Sequence[Sequence[int]]) -> None:
    """Record to which groups each job belongs, from the most similar jobs to the widest
    group."""
    for job, circles in enumerate(groups):
        for circle, group in enumerate(circles):
            kin.group[job * CIRCLES + circle] = group


@compiled
def predicted_seconds(kin: KinMeans, job: int, limit: float) -> float:
    """Return the mean run time of the most similar ended jobs, at most the limit. If
    none has ended, return the limit (0 for none)."""
    for circle in range(CIRCLES):
        group = kin.group[job * CIRCLES + circle]
        if group >= 0 and kin.ended[group] > 0:
            seconds = kin.mean[group]
            return float(min(seconds, limit) if limit > 0 else seconds)
    return limit


@compiled
def learn_seconds(kin: KinMeans, job: int, seconds: float) -> None:
    """Update the job's groups after it has ended with `seconds` of service."""
    for circle in range(CIRCLES):
        group = kin.group[job * CIRCLES + circle]
        if group >= 0:
            kin.ended[group] += 1
            kin.mean[group] = _mean_after(
                kin.mean[group], kin.ended[group], circle, seconds
            )
