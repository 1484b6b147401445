"""Candidates for preemption, grouped so that a right to stop one gang applies to its
group. The state of each gang is read only when needed, because most passes stop no
gang."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from corral.domain.ids import JobId, QueueName
from corral.schedule.running import RunningGang

Alike = tuple[QueueName, int, bool, bool]  # queue, priority, can_save, preemptible


class Listed(NamedTuple):
    """A running gang in a group of candidates for preemption. `order` is the gang's
    place in the order of submission; it decides between two candidates of equal cost,
    so that every head stops the same one."""

    order: tuple[int, int]
    job: JobId


class Roster:
    """All running gangs that may be candidates for preemption.

    `groups`: gangs that another gang might have a right to stop. A right to stop one
    gang of a group applies to the whole group. `leaving`: gangs that are about to end,
    whether they are in a group or not. `look` returns the current state of a gang in
    `groups` or `leaving`, and None for any other gang.
    """

    def __init__(
        self,
        groups: Mapping[Alike, Sequence[Listed]],
        leaving: Sequence[JobId],
        look: Callable[[JobId], RunningGang | None],
    ) -> None:
        self.groups = [group for group in groups.values() if group]
        self.leaving = leaving
        self._look = look
        self._looked: dict[JobId, RunningGang | None] = {}

    @classmethod
    def of(cls, running: Iterable[RunningGang]) -> "Roster":
        """Return a Roster of these running gangs, whose state is already known, in
        their order."""
        by_job = {gang.job: gang for gang in running}
        groups: dict[Alike, list[Listed]] = defaultdict(list)
        for gang_index, running_gang in enumerate(by_job.values()):
            alike = (
                running_gang.queue,
                running_gang.priority,
                running_gang.can_save,
                running_gang.preemptible,
            )
            groups[alike].append(Listed((gang_index, 0), running_gang.job))
        return cls(
            groups, [job for job, gang in by_job.items() if gang.stopping], by_job.get
        )

    def __bool__(self) -> bool:
        return bool(self.groups or self.leaving)

    def get(self, job: JobId) -> RunningGang | None:
        if job not in self._looked:
            self._looked[job] = self._look(job)
        return self._looked[job]

    def some(self, jobs: Iterable[JobId]) -> list[RunningGang]:
        """Return the state of those given jobs that are candidates."""
        return [
            running_gang for job in jobs if (running_gang := self.get(job)) is not None
        ]

    def first(self, group: Sequence[Listed]) -> RunningGang:
        """Return the state of a group's first candidate, which stands for all: a right
        to stop it applies to the whole group."""
        running_gang = self.get(group[0].job)
        assert running_gang is not None
        return running_gang

    def in_order(self, groups: Iterable[Sequence[Listed]]) -> list[RunningGang]:
        """Return all candidates of these groups, in the order of submission."""
        return self.some(listed.job for listed in sorted(chain.from_iterable(groups)))
