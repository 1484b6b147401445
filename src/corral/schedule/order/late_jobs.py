"""Protection of jobs that wait long, so that no job starves behind jobs with better keys.

The lateness of a job is its total wait, divided by its attained service plus a grace
time. So a short job is late sooner than a long one, and service makes a job less late.
If the waits of a job add up to more than a limit, it is late: the latest job goes
before all others of its priority in the line. Once it runs, no job may preempt it for
one turn, which doubles the service that it has.

Late jobs are not all promoted, because a long line would become first come, first
served (0014). Instead, they may use a part of the cluster that grows with the lateness.
A line has no late job while the jobs in their turn, and later jobs of other lines, use
more than that part.
"""

from typing import Final

LATE_SECONDS: Final = 21_600.0  # wait from which lateness counts
GRACE_SECONDS: Final = 7_200.0
TURN_SECONDS: Final = 172_800.0  # of the longest turn
SCALE: Final = 40.0  # lateness at which the whole cluster would be lent
MOST: Final = 0.1  # of the cluster is lent to late jobs
LATE_KEY: Final = float("-inf")  # the key of a late job: better than any


def lateness_of(waited_seconds: float, served_seconds: float) -> float:
    """Return the wait of a job in multiples of its attained service and grace time."""
    return waited_seconds / (served_seconds + GRACE_SECONDS)


def lent_to(lateness: float, gpus: float) -> float:
    """Return how many of the cluster's `gpus` late jobs may use, if this is the greatest
    lateness."""
    return min(MOST, (lateness / SCALE) ** 2) * gpus


def turn_seconds(served_seconds: float) -> float:
    """Return the seconds in which a late job may not be preempted after its start."""
    return min(max(served_seconds, GRACE_SECONDS), TURN_SECONDS)
