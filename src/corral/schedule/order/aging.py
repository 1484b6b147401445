"""Nobody waits without end behind those whose keys are better: the elder of a line.

Of the gangs of a line that have waited for more than a day, all their waits together, the one that
has waited longest goes before all others of its priority; once it runs, nobody buys its place for a
turn. They are not promoted one and all: then a long line turns into first come, first served
(0014). So age is lent a part of the cluster that grows with the wait: a line has no elder as long
as those in their turn, and the elders of other lines that have waited longer, take more than that.
"""

from typing import Final

ELDER_SECONDS: Final = 86_400.0
TURN_SECONDS: Final = 172_800.0
SCALE_SECONDS: Final = 2_732_000.0  # a job that waited this long may use the whole cluster
MOST: Final = 0.5  # of the cluster is lent to age
ELDEST: Final = float("-inf")  # the key of an elder: better than any


def lent_to(waited_seconds: float, gpus: float) -> float:
    """Return how many of all GPUs may be lent to the job that has waited longest."""
    return min(MOST, (waited_seconds / SCALE_SECONDS) ** 2) * gpus
