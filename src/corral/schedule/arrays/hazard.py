"""The probability that a job ends soon, by its attained service, and the rank that
follows from it.

A level is a range of attained service. Of the jobs that reached a level, some ended in
it: that share is the hazard. The code is uncompiled: `history` compiles it for the
columns of traces, and `learned` uses it directly, since a live head does not wait for a
compiler.
"""

from collections.abc import Iterator
from typing import Any, Final

LEVELS: Final = 36
FIRST_SECONDS: Final = 60.0  # below this, jobs are not distinguished
RATIO: Final = 1.5  # of one level's end to the one before
# hazard before anything is known: half of the jobs end within 5 levels
GUESS: Final = 0.12
GUESS_JOBS: Final = 2.0  # how many jobs the guess weighs
LAST_GUESS: Final = 0.9  # the same in the last level
# how many jobs a record weighs for a smaller one that leans on it
LEAN_JOBS: Final = 5.0
RECENT_JOBS: Final = 100.0  # jobs that the recent record remembers: bursts are alike


def edges() -> Iterator[float]:
    """Yield where the levels begin, and where the last one ends."""
    yield 0.0
    for level in range(LEVELS):
        yield FIRST_SECONDS * RATIO**level


def overall_hazard(ended: float, reached: float, level: int) -> float:
    """Return the hazard over all classes: the share of the jobs that reached the level
    and ended in it, blended with a guess."""
    guess = GUESS if level < LEVELS - 1 else LAST_GUESS
    return (ended + GUESS_JOBS * guess) / (reached + GUESS_JOBS)


def class_hazard(
    ended: float,
    reached: float,
    recent_ended: float,
    recent_reached: float,
    live: float,
    overall: float,
) -> float:
    """Return the hazard in one class. The estimate from recent jobs is blended with the
    long record of the class, which is blended with the hazard over all classes.

    `live` is the number of jobs that have passed the level and are not over.
    """
    long = (ended + LEAN_JOBS * overall) / (reached + live + LEAN_JOBS)
    return float(
        (recent_ended + LEAN_JOBS * long) / (recent_reached + live + LEAN_JOBS)
    )


def gittins_rank(hazard: Any, edge: Any, level: int) -> float:
    """Return the Gittins rank: the least expected seconds of service for each end, over
    all lengths of the next stretch of service.

    `hazard` is indexed by level. `edge` holds where the levels begin, and where the
    last one ends.

    Source: Gittins 1979; for queues Scully, Harchol-Balter and Scheller-Wolf 2018
    (SOAP).
    """
    alive, seconds, best_rank = 1.0, 0.0, 1e30
    for stretch in range(level, LEVELS):
        width = edge[stretch + 1] - edge[stretch]
        chance = hazard[stretch]
        seconds += alive * width * (1 - 0.5 * chance)
        alive *= 1 - chance
        if alive < 1 - 1e-9:
            best_rank = min(best_rank, seconds / (1 - alive))
    return best_rank
