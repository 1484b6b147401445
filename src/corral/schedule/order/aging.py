"""Protection of a line's oldest gang from starvation behind gangs with better keys.
That gang is called the elder of the line.

If the waits of a gang add up to more than a day, it is old. The old gang that has
waited longest goes before all others of its priority in the line. Once it runs, no gang
may preempt it for one turn.

Old gangs are not all promoted, because a long line would become first come, first
served (0014). Instead, old gangs may use a part of the cluster that grows with the
wait. A line has no elder while the gangs in their turn, and longer-waiting elders of
other lines, use more than that part.
"""

from typing import Final

ELDER_SECONDS: Final = 86_400.0
TURN_SECONDS: Final = 172_800.0
# a job that has waited this long would be lent the whole cluster
SCALE_SECONDS: Final = 2_732_000.0
MOST: Final = 0.5  # of the cluster is lent to age
ELDEST: Final = float("-inf")  # the key of an elder: better than any


def lent_to(waited_seconds: float, gpus: float) -> float:
    """Return how many of the cluster's `gpus` may be used by old jobs if the oldest has
    waited this long."""
    return min(MOST, (waited_seconds / SCALE_SECONDS) ** 2) * gpus
