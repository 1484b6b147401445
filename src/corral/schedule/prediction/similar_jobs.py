"""The mean run time of a group of kin, which forgets: plain text, for columns and for a
live table.

Of one user's jobs about the last two count (Tsafrir, Etsion and Feitelson 2007), of one
queue's and of all the last fifty.
"""

from typing import Final

CIRCLES: Final = 4  # user, name and size; user and size; queue and size; everybody
# of the newest end in a mean, once there are enough
NEW_WEIGHT: Final = (0.5, 0.5, 0.02, 0.02)


def mean_after(mean: float, ended: int, circle: int, seconds: float) -> float:
    """Return the mean of a group in the circle after its newest, `ended`th end.

    `seconds`: the run time of that job.
    """
    weight = max(NEW_WEIGHT[circle], 1.0 / ended)
    return mean + weight * (seconds - mean)
