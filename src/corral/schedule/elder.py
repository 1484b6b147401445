"""Nobody waits without end behind those whose keys are better: the elder of a line.

Of the gangs of a line that have waited for more than a day, the one that has waited longest goes
before all others of its priority; once it runs, nobody buys its place for a turn. They are not
promoted one and all: then a long line turns into first come, first served (0014).
"""

from typing import Final

ELDER_SECONDS: Final = 86_400.0
TURN_SECONDS: Final = 172_800.0
ELDEST: Final = float("-inf")  # the key of an elder: better than any


def is_old(since: float, now: float) -> bool:
    """Whether one that waits since then (wall clock) may be its line's elder."""
    return now - since >= ELDER_SECONDS


def protected_until(since: float, placed_at: float) -> float | None:
    """Until when nobody buys the place of one that has waited since then; None: it was no elder."""
    return placed_at + TURN_SECONDS if is_old(since, placed_at) else None
