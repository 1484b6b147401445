"""The queued jobs as the scheduler sees them: kept from tick to tick, always what the draft says.

A row of a job that is still the same object needs no second look, so a tick costs what has changed.
Only what gangs are made of beside their own rows, the basis, makes all of them be made anew.
"""

from collections.abc import Callable

from corral.domain.ids import JobId, QueueName
from corral.domain.job import Job
from corral.domain.moves import JobState
from corral.reconcile.draft import Draft
from corral.schedule import Groups, Waiting

Basis = tuple[object, ...]
Make = Callable[[Job], Waiting | None]


class Queued:
    """A cache: without it a tick decides the same."""

    def __init__(self) -> None:
        self._basis: Basis = ()
        self._jobs: dict[JobId, Job] = {}
        self._groups = Groups()

    def of(self, draft: Draft, over: frozenset[QueueName], make: Make) -> Groups:
        """All gangs that wait now. `make` answers None where it has met a fault of ours."""
        basis = (draft.tree, over, shared_paths(draft))
        if not _is_same(basis, self._basis):
            self._basis, self._jobs, self._groups = basis, {}, Groups()
        queued = {job.id: job for job in draft.in_states(JobState.QUEUED)}
        for id in self._jobs.keys() - queued.keys():
            del self._jobs[id]
            self._groups.drop(id)
        for id, job in queued.items():
            if self._jobs.get(id) is not job or _has_saves(job):
                self._put(job, make(job))
        return self._groups

    def _put(self, job: Job, gang: Waiting | None) -> None:
        if gang is None:
            self._groups.drop(job.id)
            self._jobs.pop(job.id, None)
        elif self._groups.get(job.id) != gang:
            self._groups.put(gang)
            self._jobs[job.id] = job


def shared_paths(draft: Draft) -> frozenset[str]:
    """What nodes declare as shared, whether all of them do or one."""
    nodes = draft.all_nodes().values()
    return frozenset(path for node in nodes for path, _ in node.inventory.shared)


def _is_same(basis: Basis, other: Basis) -> bool:
    """The tree is compared as an object: a changed one is another."""
    return bool(other) and basis[0] is other[0] and basis[1:] == other[1:]


def _has_saves(job: Job) -> bool:
    """Where its saves lie is in no row of its own."""
    return job.spec.checkpoint is not None and job.attempt > 0
