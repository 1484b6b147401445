"""The mean run time of a group of similar jobs, in which older jobs lose weight.
Columns and the head's live table both use it.

Of one user's jobs about the last two count (Tsafrir, Etsion and Feitelson 2007); of one
queue's jobs, and of all jobs, the last fifty.
"""

from typing import Final

CIRCLES: Final = 4  # user, name and size; user and size; queue and size; everybody
# of the newest end in a mean, once there are enough
NEW_WEIGHT: Final = (0.5, 0.5, 0.02, 0.02)


def mean_after(mean: float, ended: int, circle: int, seconds: float) -> float:
    """Return the mean run time of a group after one more of its jobs has ended. `ended`
    counts the ended jobs, including this one.

    `circle`: how wide the group is, which sets the weight of a new job. `seconds`: the
    run time of that job.
    """
    weight = max(NEW_WEIGHT[circle], 1.0 / ended)
    return mean + weight * (seconds - mean)
