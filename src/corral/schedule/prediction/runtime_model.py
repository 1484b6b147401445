"""Statistics that a running head learns from ended jobs.

They give the probability that a job ends, by its attained service, and the run times of
similar jobs.

The formulas are those of the traces' columns (`hazard`, `kin`). A table is built from a
bounded record of ended jobs and never changes. A new head builds the same table from
the record that it loads. Values are computed on request, so an unused table costs
nothing.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from corral.domain.ids import QueueName, UserName
from corral.schedule.arrays.hazard import (
    LEVELS,
    RECENT_JOBS,
    class_hazard,
    edges,
    gittins_rank,
    overall_hazard,
)
from corral.schedule.prediction.similar_jobs import CIRCLES, mean_after

MOST_ENDED: Final = 5_000  # jobs that a head learns from, the newest
RELEARN: Final = 0.02  # a table is rebuilt when this share more has ended,
RELEARN_SECONDS: Final = 10.0  # and not more often than this
EDGES: Final = tuple(edges())
CIRCLE_WORDS: Final = (  # of _similarity_groups
    *(
        "of the same user, name and size",
        "of the same user and size",
        "of the same queue and size",
        "of the whole cluster",
    ),
)


class Class(NamedTuple):
    """Queue and requested GPUs (in thousandths) of a job. Run times are compared only
    between jobs for which both are equal."""

    queue: QueueName
    gpu_millis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A job that has ended, as input for predictions. `seconds` is the service that it
    received; `stem` is its name without numbers."""

    job_class: Class
    user: UserName
    stem: str
    seconds: float


class Nearest(NamedTuple):
    """Statistics of the most similar ended jobs: their mean run time, their number, and
    words for the properties that they share."""

    mean_seconds: float
    ended: int
    alike: str


Live = Callable[[], Iterable[tuple[Class, float]]]


class _Record(NamedTuple):
    """Counts of the jobs of one class, by level of attained service. They are the input
    of `hazard.class_hazard`."""

    ended: list[float]
    reached: list[float]
    recent_ended: list[float]
    recent_reached: list[float]
    live: list[float]


def level_of(seconds: float) -> int:
    """Return the level of an attained service in seconds."""
    return min(LEVELS, bisect_right(EDGES, max(0.0, seconds))) - 1


class Learned:
    """Statistics of run times, built from the jobs known at one time and never changed.

    `ended` are jobs that have ended, the oldest first. `live` are class and service of
    each unfinished job that has received some service.
    """

    def __init__(
        self, ended: Iterable[Ended] = (), live: Iterable[tuple[Class, float]] = ()
    ) -> None:
        self._ended = tuple(ended)
        self._live = tuple(live)
        self._hazards: dict[Class, list[float]] = {}
        self._ranks: dict[tuple[Class, int], float] = {}

    def rank_seconds(self, job_class: Class, attained_seconds: float) -> float:
        """Return the Gittins rank: the least expected service for each job end, for
        jobs of the class with this attained service. A small value means that an end is
        expected soon."""
        level = level_of(attained_seconds)
        if (job_class, level) not in self._ranks:
            hazard = self._hazard_by_level(job_class)
            self._ranks[job_class, level] = gittins_rank(hazard, EDGES, level)
        return self._ranks[job_class, level]

    def expected_seconds(
        self, user: UserName, stem: str, job_class: Class, limit_seconds: float | None
    ) -> float | None:
        """Return the expected run time: the mean of the most similar ended jobs, at
        most the limit. If there are no such jobs, return the limit."""
        nearest = self.nearest_kin(user, stem, job_class)
        if nearest is None or limit_seconds is None:
            return limit_seconds if nearest is None else nearest.mean_seconds
        return min(nearest.mean_seconds, limit_seconds)

    def nearest_kin(
        self, user: UserName, stem: str, job_class: Class
    ) -> "Nearest | None":
        """Return the statistics of the smallest group of similar jobs that has an ended
        job; None if no job has ended."""
        for circle_index, circle in enumerate(
            _similarity_groups(user, stem, job_class)
        ):
            if circle in self._mean_run_times:
                return Nearest(
                    *self._mean_run_times[circle], CIRCLE_WORDS[circle_index]
                )
        return None

    # -- by attained service -----------------------------------------------------------------------

    def _hazard_by_level(self, job_class: Class) -> list[float]:
        if job_class not in self._hazards:
            record = _build_record(
                self._ended_levels.get(job_class, []),
                self._running_levels.get(job_class, []),
            )
            rows = zip(*record, self._combined_hazard, strict=True)
            self._hazards[job_class] = [class_hazard(*row) for row in rows]
        return self._hazards[job_class]

    @cached_property
    def _ended_levels(self) -> dict[Class, list[int]]:
        """Return for each class the service levels at which its jobs have ended, the
        oldest job first."""
        levels: dict[Class, list[int]] = defaultdict(list)
        for ended_job in self._ended:
            levels[ended_job.job_class].append(level_of(ended_job.seconds))
        return levels

    @cached_property
    def _running_levels(self) -> dict[Class, list[int]]:
        """Return the service levels of the jobs that are not over, by class."""
        lives: dict[Class, list[int]] = defaultdict(list)
        for job_class, seconds in self._live:
            lives[job_class].append(level_of(seconds))
        return lives

    @cached_property
    def _combined_hazard(self) -> list[float]:
        ended_counts, passed = [0.0] * LEVELS, [0.0] * LEVELS
        for levels in self._ended_levels.values():
            for level in levels:
                ended_counts[level] += 1
        for levels in self._running_levels.values():
            for level in levels:
                passed[level - 1] += level > 0
        reached, beyond = _sums_from(ended_counts), _sums_from(passed)
        return [
            overall_hazard(ended_counts[level], reached[level] + beyond[level], level)
            for level in range(LEVELS)
        ]

    # -- by kin ------------------------------------------------------------------------------------

    @cached_property
    def _mean_run_times(self) -> dict[tuple[object, ...], tuple[float, int]]:
        """Return (mean seconds, number of ended jobs) for each group of similar jobs."""
        means: dict[tuple[object, ...], tuple[float, int]] = {}
        for ended_job in self._ended:
            for circle_index, circle in enumerate(
                _similarity_groups(ended_job.user, ended_job.stem, ended_job.job_class)
            ):
                mean, ended_count = means.get(circle, (0.0, 0))
                means[circle] = (
                    mean_after(mean, ended_count + 1, circle_index, ended_job.seconds),
                    ended_count + 1,
                )
        return means


class Lessons:
    """The newest ended jobs, and the statistics table learned from them, which is
    rebuilt as more jobs end.

    `live` is as for Learned; it is called only when a table is built.
    """

    def __init__(self, ended: Iterable[Ended] = (), live: Live = tuple) -> None:
        self._ended = deque(ended, maxlen=MOST_ENDED)
        self._new = 0
        self._made_at = float("-inf")
        self.table = Learned(self._ended, live())

    @property
    def due_at(self) -> float:
        """Return when the table is rebuilt if no more jobs end; `inf` if too few jobs
        have ended since the last build."""
        has_more = self._new > RELEARN * len(self._ended)
        return self._made_at + RELEARN_SECONDS if has_more else float("inf")

    def learn(self, ended: Iterable[Ended], now: float, live: Live) -> None:
        """Record these ended jobs, and rebuild the table if it is due. `now`: seconds
        of a monotonic clock."""
        for ended_job in ended:
            self._ended.append(ended_job)
            self._new += 1
        if now >= self.due_at:
            self.table = Learned(self._ended, live())
            self._new, self._made_at = 0, now


def _build_record(ends: Sequence[int], lives: Sequence[int]) -> _Record:
    ended_counts, recent, passed = [0.0] * LEVELS, [0.0] * LEVELS, [0.0] * LEVELS
    weight, keep = 1.0, 1 - 1 / RECENT_JOBS
    for level in reversed(ends):  # the newest counts most
        ended_counts[level] += 1
        recent[level] += weight
        weight *= keep
    for level in lives:
        passed[level - 1] += level > 0
    return _Record(
        ended_counts,
        _sums_from(ended_counts),
        recent,
        _sums_from(recent),
        _sums_from(passed),
    )


def _sums_from(column: Sequence[float]) -> list[float]:
    """Return for each level the sum of its value and the values of all higher levels."""
    total, sums = 0.0, [0.0] * len(column)
    for level in range(len(column) - 1, -1, -1):
        total += column[level]
        sums[level] = total
    return sums


def _similarity_groups(
    user: UserName, stem: str, job_class: Class
) -> tuple[tuple[object, ...], ...]:
    """Return the keys of the groups to which a job belongs, from the most similar jobs
    to all jobs."""
    circles = (
        (user, stem, job_class.gpu_millis),
        (user, job_class.gpu_millis),
        job_class,
        (),
    )
    assert len(circles) == CIRCLES
    return tuple((circle_index, *circle) for circle_index, circle in enumerate(circles))
