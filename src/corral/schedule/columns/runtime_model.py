"""Hazard of running jobs, learned from ended ones: the probability that a job ends
soon, by class and attained service.

A level is a range of attained service. Of the jobs that reached a level, some ended in
it: that share is the hazard. For a class with few jobs, the estimate is blended with
the class's own long record. That record is blended with the record of all classes,
which is blended with a guess. Jobs that still run count as having reached their level.
"""

from typing import Any, Final, NamedTuple

from corral.schedule.arrays import hazard
from corral.schedule.arrays.compiled import column, compiled
from corral.schedule.arrays.hazard import LEVELS, RECENT_JOBS, edges

# the ranks are recomputed when this share more has ended, and at least
RELEARN: Final = 0.02
RELEARN_JOBS: Final = 50  # this number of jobs

_overall_hazard = compiled(hazard.overall_hazard)
_class_hazard = compiled(hazard.class_hazard)
_gittins_rank = compiled(hazard.gittins_rank)


class History(NamedTuple):
    """Columns of the hazards learned from ended jobs: the probability that a job ends
    in a level of service. The columns are indexed by class * LEVELS + level, except
    `edge`, `hazard`, `overall` and `count`.

    `paused` counts the preempted jobs that have reached the level and wait now. `live`
    counts these and the running jobs. `rank` is the Gittins rank in seconds: the least
    expected service for each job end, over all lengths of further service. A small rank
    means that an end is expected soon.
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
    """Return the history before any job has ended."""
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


@compiled
def level_after(history: History, level: int, attained: float) -> int:
    """Return the level of the attained service. It is searched upwards from `level`,
    where the job was before."""
    while level < LEVELS - 1 and attained >= history.edge[level + 1]:
        level += 1
    return level


@compiled
def learn_end(history: History, klass: int, level: int) -> None:
    """Record that a job of the class ended in the level."""
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
    """Add `jobs` to the number of preempted jobs that have reached the level and wait:
    1 when a job is preempted, -1 when a preempted job continues."""
    for row in range(klass * LEVELS, klass * LEVELS + level):
        history.paused[row] += jobs


@compiled
def is_due(history: History) -> bool:
    """Return whether enough jobs have ended since the ranks were last computed."""
    return bool(history.count[1] >= max(RELEARN_JOBS, RELEARN * history.count[0]))


@compiled
def relearn(history: History) -> None:
    """Recompute the ranks. The caller must have filled `live`."""
    history.count[1] = 0
    _update_overall_hazard(history)
    for klass in range(history.classes):
        start = klass * LEVELS
        for level in range(LEVELS):
            history.hazard[level] = hazard_of(history, klass, level)
        for level in range(LEVELS):
            history.rank[start + level] = _gittins_rank(
                history.hazard, history.edge, level
            )


@compiled
def hazard_of(history: History, klass: int, level: int) -> float:
    """Return the probability that a job of the class which has reached the level ends
    in it."""
    row = klass * LEVELS + level
    return float(
        _class_hazard(
            history.ended[row],
            history.reached[row],
            history.recent_ended[row],
            history.recent_reached[row],
            history.live[row],
            history.overall[level],
        )
    )


@compiled
def _update_overall_hazard(history: History) -> None:
    for level in range(LEVELS):
        ended_count, reached = 0.0, 0.0
        for klass in range(history.classes):
            row = klass * LEVELS + level
            ended_count += history.ended[row]
            reached += history.reached[row] + history.live[row]
        history.overall[level] = _overall_hazard(ended_count, reached, level)
