"""Queued jobs as the scheduler sees them.

They are kept between ticks, and always equal the draft. The row of an unchanged job
object is reused, so a tick costs only what has changed. All rows are rebuilt only if
the basis changes, on which gangs depend in addition to their own rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from corral.domain.ids import JobId, NodeId, QueueName
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.placement_constraints import AccountConstraint, off_refusing_nodes
from corral.domain.resources import Inventory
from corral.reconcile.changeset import Draft
from corral.schedule import Groups, Shares, Waiting

Basis = tuple[object, ...]
Make = Callable[[Job], Waiting | None]


@dataclass(frozen=True, slots=True)
class OfNodes:
    """Data about the nodes that the scheduler needs to place waiting jobs.

    `shared`: paths that nodes declare as shared. `refused`: for each user without an
    account on some nodes, the constraint that keeps the user's jobs off these nodes.
    """

    shared: frozenset[str]
    refused: Mapping[str, AccountConstraint]

    @classmethod
    def of(cls, inventories: Mapping[NodeId, Inventory]) -> "OfNodes":
        shared_paths = frozenset(
            path for inventory in inventories.values() for path, _ in inventory.shared
        )
        refusing = [
            (id, inventory.refused_users)
            for id, inventory in inventories.items()
            if inventory.refused_users
        ]
        return cls(shared_paths, _refused_owners(refusing))


def _refused_owners(
    refusing: Iterable[tuple[NodeId, tuple[tuple[str, str], ...]]],
) -> Mapping[str, AccountConstraint]:
    nodes: dict[str, list[NodeId]] = {}
    reasons: dict[str, str] = {}
    for id, users in refusing:
        for user, refusal_reason in users:
            nodes.setdefault(user, []).append(id)
            reasons.setdefault(user, f"node {id}: {refusal_reason}")
    return {
        user: off_refusing_nodes(ids, user, reasons[user])
        for user, ids in nodes.items()
    }


class Queued:
    """Cache of waiting jobs. Decisions are the same without it, except for the usual
    sizes of GPU shares, which only the cache remembers.

    `shares`: those sizes, learned from all jobs that were unfinished when this head
    began, and from each later job.
    """

    def __init__(self) -> None:
        self._inventories: Mapping[NodeId, Inventory] = {}
        self._nodes = OfNodes(frozenset(), {})
        self._basis: Basis = ()
        self._jobs: dict[JobId, Job] = {}
        # where its saves and models lie, and how long its service drains it, is not in
        # the row of a job
        self._depending: set[JobId] = set()
        self._groups = Groups()
        self.shares = Shares()
        self._newest = -1  # submission that shares are learned from

    def of(self, draft: Draft, over: frozenset[QueueName], make: Make) -> Groups:
        """Return all gangs that wait now. `make` builds a gang from its job; it returns
        None for a job on which it meets a bug of Corral."""
        basis = (draft.tree, over, self.of_nodes(draft))
        if not _is_same(basis, self._basis):
            self._basis, self._jobs, self._groups = basis, {}, Groups()
            self._depending = set()
        queued = draft.by_id(JobState.QUEUED)
        for id in self._jobs.keys() - queued.keys():
            self._remove_job(id)
        job_of = self._jobs.get
        changed_jobs = [job for id, job in queued.items() if job_of(id) is not job]
        self._learn_arrivals(
            changed_jobs if self._newest >= 0 else list(draft.all_jobs())
        )
        for job in [*changed_jobs, *(queued[id] for id in self._depending)]:
            self._update_job(job, make(job))
        return self._groups

    def of_nodes(self, draft: Draft) -> OfNodes:
        """Return the state of nodes that decides about waiting jobs.

        It is rebuilt when an inventory changes.
        """
        inventories = {node.id: node.inventory for node in draft.all_nodes().values()}
        inventories_by_node = self._inventories
        if inventories.keys() != inventories_by_node.keys() or any(
            inventories_by_node[id] is not inventory
            for id, inventory in inventories.items()
        ):
            self._inventories, self._nodes = inventories, OfNodes.of(inventories)
        return self._nodes

    def _learn_arrivals(self, jobs: Sequence[Job]) -> None:
        """Learn the usual GPU parts from jobs submitted since the last pass, in order."""
        arrived_jobs = [job for job in jobs if job.submitted > self._newest]
        for job in sorted(
            arrived_jobs, key=lambda job: (job.submitted, job.spec.array_index or 0)
        ):
            self.shares.arrive(job.spec.shapes[0])
            self._newest = job.submitted

    def _update_job(self, job: Job, gang: Waiting | None) -> None:
        if gang is None:
            self._remove_job(job.id)
            return
        self._jobs[job.id] = job
        has_saves = job.spec.checkpoint is not None and job.attempt > 0
        if has_saves or job.spec.model is not None or job.spec.replica is not None:
            self._depending.add(job.id)
        if self._groups.get(job.id) != gang:
            self._groups.put(gang)

    def _remove_job(self, id: JobId) -> None:
        self._jobs.pop(id, None)
        self._depending.discard(id)
        self._groups.drop(id)


def _is_same(basis: Basis, other: Basis) -> bool:
    """Return whether both bases are the same, so that cached rows stay valid. The queue
    tree is compared by object identity: a changed tree is another object."""
    return bool(other) and basis[0] is other[0] and basis[1:] == other[1:]
