"""How long a job will run, guessed from its kin: ended jobs of the same user, name and size.

Each group of kin keeps a mean that forgets: of one user's jobs about the last two count (Tsafrir,
Etsion and Feitelson 2007), of one queue's and of all the last fifty. The nearest kin that has ended
speaks for a job; nobody runs longer than the limit that the user gave.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from corral.schedule.compiled import column, compiled

CIRCLES: Final = 4  # user, name and size; user and size; queue and size; everybody
NEW_WEIGHT: Final = (0.5, 0.5, 0.02, 0.02)  # of the newest end in a mean, once there are enough


class Kin(NamedTuple):
    """`group`: job * CIRCLES + circle -> a row of `mean` (seconds) and `ended` (jobs), or -1."""

    group: Any
    mean: Any
    ended: Any


def kin_of(jobs: int, groups: int) -> Kin:
    """Room for so many groups; without groups nothing is predicted."""
    return Kin(
        group=column(jobs * CIRCLES if groups else 0, "int"),
        mean=column(groups, "float"),
        ended=column(groups, "int"),
    )


def enter_kin(kin: Kin, groups: Sequence[Sequence[int]]) -> None:
    """Tell each job's groups, from the nearest circle to the widest."""
    for job, circles in enumerate(groups):
        for circle, group in enumerate(circles):
            kin.group[job * CIRCLES + circle] = group


@compiled
def predicted_seconds(kin: Kin, job: int, limit: float) -> float:
    """What the nearest kin took, at most the limit; the limit (0 for none) when nobody ended."""
    for circle in range(CIRCLES):
        group = kin.group[job * CIRCLES + circle]
        if group >= 0 and kin.ended[group] > 0:
            seconds = kin.mean[group]
            return float(min(seconds, limit) if limit > 0 else seconds)
    return limit


@compiled
def learn_seconds(kin: Kin, job: int, seconds: float) -> None:
    """The job has ended after so many seconds of service."""
    for circle in range(CIRCLES):
        group = kin.group[job * CIRCLES + circle]
        if group >= 0:
            kin.ended[group] += 1
            weight = max(NEW_WEIGHT[circle], 1.0 / kin.ended[group])
            kin.mean[group] += weight * (seconds - kin.mean[group])
