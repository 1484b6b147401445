"""Learning of run times from the gangs that end within a replay."""

from collections.abc import Callable, Iterable
from math import inf

from corral.schedule.order.priority_key import class_of
from corral.schedule.prediction.runtime_model import Ended, Learned, Lessons
from corral.schedule.waiting import Waiting

# each gang that is not over, and its service in seconds
Served = Iterable[tuple[Waiting, float]]


class ReplayLearning:
    """With `lessons`, the replay learns run times from each job that ends. Without, it
    keeps using the table `learned`."""

    def __init__(self, lessons: Lessons | None, learned: Learned | None) -> None:
        self._lessons = lessons
        self._learned = learned
        self._ended: list[Ended] = []

    def hear(self, gang: Waiting, seconds: float) -> None:
        """Record that the gang has ended; `seconds` is its service since its last
        start."""
        seconds += gang.served_seconds
        if self._lessons is None:
            return
        self._ended.append(
            Ended(
                job_class=class_of(gang),
                user=gang.user,
                stem=gang.stem,
                seconds=seconds,
            )
        )

    def learn(self, now: float, served: Callable[[], Served]) -> bool:
        """Learn from the recorded ends, as a head does after each decision. `served`
        returns the service of the jobs that are not over. Return whether the learned
        table has changed."""
        if self._lessons is None:
            return False
        previous_table, ended_jobs = self._lessons.table, self._ended
        self._ended = []
        self._lessons.learn(
            ended_jobs,
            now,
            lambda: ((class_of(gang), s) for gang, s in served() if s > 0),
        )
        return self._lessons.table is not previous_table

    @property
    def due_at(self) -> float:
        """Return when the learned table is rebuilt if no more jobs end; inf if it will
        not be."""
        return inf if self._lessons is None else self._lessons.due_at

    @property
    def table(self) -> Learned | None:
        return self._learned if self._lessons is None else self._lessons.table
