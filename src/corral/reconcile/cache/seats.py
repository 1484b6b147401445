"""Seats on each node, kept from pass to pass and updated with the rows."""

from collections import defaultdict
from collections.abc import Iterable

from corral.domain.attempt import Allocation, SeatState
from corral.domain.ids import JobId, NodeId
from corral.domain.world import AllocationKey
from corral.reconcile.changeset import Draft


class Seats:
    """Cache of all allocations that are not released. An allocation whose row is still
    the same object counts as unchanged, although its job may have ended meanwhile."""

    def __init__(self) -> None:
        self._rows: dict[AllocationKey, Allocation] = {}
        self._on: dict[NodeId, dict[AllocationKey, Allocation]] = defaultdict(dict)
        self._of: dict[JobId, set[AllocationKey]] = defaultdict(set)
        # jobs that are over, of those that hold something
        self._over: set[JobId] = set()

    def all(self) -> Iterable[Allocation]:
        return self._rows.values()

    def on(self, node: NodeId) -> Iterable[Allocation]:
        return self._on.get(node, {}).values()

    def see(self, draft: Draft) -> tuple[list[Allocation], list[Allocation]]:
        """Update the seats to the draft. Return the seats that are gone and the seats
        that are new; a changed seat is in both lists, with its old and its new row."""
        rows = {**draft.world.allocations, **draft.allocations}
        known_rows = self._rows
        allocations = [
            allocation
            for key, allocation in known_rows.items()
            if rows.get(key) is not allocation
        ]
        added_allocations = [
            allocation
            for key, allocation in rows.items()
            if known_rows.get(key) is not allocation
        ]
        added_allocations = [
            allocation
            for allocation in added_allocations
            if allocation.state != SeatState.RELEASED
        ]
        for allocation in allocations:
            self._remove_allocation(allocation)
        for allocation in added_allocations:
            self._add_allocation(allocation)
        missing_jobs = {
            id for id in self._of if id not in draft.world.jobs and id not in draft.jobs
        }
        added_keys = {allocation.key for allocation in added_allocations}
        turned = {
            key for id in missing_jobs ^ self._over for key in self._of.get(id, ())
        } - added_keys
        self._over = missing_jobs
        turned_allocations = [known_rows[key] for key in turned]
        return [*allocations, *turned_allocations], [
            *added_allocations,
            *turned_allocations,
        ]

    def _add_allocation(self, one: Allocation) -> None:
        self._rows[one.key] = self._on[one.seat.node][one.key] = one
        self._of[one.job].add(one.key)

    def _remove_allocation(self, one: Allocation) -> None:
        del self._rows[one.key], self._on[one.seat.node][one.key]
        self._of[one.job].remove(one.key)
        if not self._of[one.job]:
            del self._of[one.job]
