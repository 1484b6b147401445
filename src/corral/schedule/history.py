"""What ended jobs teach about running ones: the chance to end soon, by class and attained service.

A level is a range of attained service. Of the jobs that reached a level, some ended in it: that
share is the hazard. A class with few jobs leans on the long record of its own, that one on the
record of all, and that one on a guess; jobs that still run count as having reached their level.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from corral.schedule.compiled import column, compiled

LEVELS: Final = 36
FIRST_SECONDS: Final = 60.0  # below this, jobs are not told apart
RATIO: Final = 1.5  # of one level's end to the one before
GUESS: Final = 0.12  # hazard before anything is known: half of the jobs end within 5 levels
GUESS_JOBS: Final = 2.0  # how many jobs the guess weighs
LEAN_JOBS: Final = 5.0  # how many jobs a record weighs for a smaller one that leans on it
RECENT_JOBS: Final = 100.0  # the recent record forgets as if it held so many: bursts are alike
RELEARN: Final = 0.02  # the ranks are made anew when so much more has ended, and at least
RELEARN_JOBS: Final = 50  # so many


class History(NamedTuple):
    """Columns at class * LEVELS + level, but for `edge` `hazard`, `overall` and `count`.

    `paused`: preempted jobs that reached the level and wait now. `live`: those and the running.
    `rank` is the Gittins rank in seconds: the least expected service for each end, over all
    lengths of the next stretch; small is soon.
    """

    classes: int
    edge: Any
    ended: Any
    reached: Any
    recent_ended: Any
    recent_reached: Any
    paused: Any
    live: Any
    rank: Any
    hazard: Any
    overall: Any
    count: Any


def history_of(classes: int) -> History:
    """Nothing has ended yet."""
    rows = classes * LEVELS
    history = History(
        classes=classes,
        edge=column(LEVELS + 1, "float"),
        ended=column(rows, "float"),
        reached=column(rows, "float"),
        recent_ended=column(rows, "float"),
        recent_reached=column(rows, "float"),
        paused=column(rows, "float"),
        live=column(rows, "float"),
        rank=column(rows, "float"),
        hazard=column(LEVELS, "float"),
        overall=column(LEVELS, "float"),
        count=column(2, "int"),
    )
    for level, edge in enumerate(edges()):
        history.edge[level] = edge
    history.count[1] = RELEARN_JOBS  # the first ranks come from the guess alone
    return history


def edges() -> Iterator[float]:
    """Where the levels begin, and where the last one ends."""
    yield 0.0
    for level in range(LEVELS):
        yield FIRST_SECONDS * RATIO**level


@compiled
def level_after(history: History, level: int, attained: float) -> int:
    """The level of an attained service that began at `level` or below it."""
    while level < LEVELS - 1 and attained >= history.edge[level + 1]:
        level += 1
    return level


@compiled
def learn_end(history: History, klass: int, level: int) -> None:
    """A job of the class ended in the level."""
    start, keep = klass * LEVELS, 1 - 1 / RECENT_JOBS
    for row in range(start, start + LEVELS):
        history.recent_ended[row] *= keep
        history.recent_reached[row] *= keep
    history.ended[start + level] += 1
    history.recent_ended[start + level] += 1
    for row in range(start, start + level + 1):
        history.reached[row] += 1
        history.recent_reached[row] += 1
    history.count[0] += 1
    history.count[1] += 1


@compiled
def pause(history: History, klass: int, level: int, jobs: int) -> None:
    """So many jobs of the class (1, or -1 for one that goes on) wait at the level."""
    for row in range(klass * LEVELS, klass * LEVELS + level):
        history.paused[row] += jobs


@compiled
def is_due(history: History) -> bool:
    """Whether enough has ended since the ranks were made."""
    return bool(history.count[1] >= max(RELEARN_JOBS, RELEARN * history.count[0]))


@compiled
def relearn(history: History) -> None:
    """Make the ranks anew. The caller has filled `live`."""
    history.count[1] = 0
    _overall(history)
    for klass in range(history.classes):
        start = klass * LEVELS
        for level in range(LEVELS):
            history.hazard[level] = hazard_of(history, klass, level)
        for level in range(LEVELS):
            history.rank[start + level] = _rank(history, level)


@compiled
def hazard_of(history: History, klass: int, level: int) -> float:
    """The chance that a job of the class which has reached the level ends in it."""
    row = klass * LEVELS + level
    long = (history.ended[row] + LEAN_JOBS * history.overall[level]) / (
        history.reached[row] + history.live[row] + LEAN_JOBS
    )
    return float(
        (history.recent_ended[row] + LEAN_JOBS * long)
        / (history.recent_reached[row] + history.live[row] + LEAN_JOBS)
    )


@compiled
def _overall(history: History) -> None:
    for level in range(LEVELS):
        ended, reached = 0.0, 0.0
        for klass in range(history.classes):
            row = klass * LEVELS + level
            ended += history.ended[row]
            reached += history.reached[row] + history.live[row]
        guess = GUESS if level < LEVELS - 1 else 0.9
        history.overall[level] = (ended + GUESS_JOBS * guess) / (reached + GUESS_JOBS)


@compiled
def _rank(history: History, level: int) -> float:
    """Source: Gittins 1979; for queues Scully, Harchol-Balter and Scheller-Wolf 2018 (SOAP)."""
    alive, seconds, best = 1.0, 0.0, 1e30
    for stretch in range(level, LEVELS):
        width = history.edge[stretch + 1] - history.edge[stretch]
        hazard = history.hazard[stretch]
        seconds += alive * width * (1 - 0.5 * hazard)
        alive *= 1 - hazard
        if alive < 1 - 1e-9:
            best = min(best, seconds / (1 - alive))
    return best
