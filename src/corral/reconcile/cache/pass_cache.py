"""Cache of what the head derives from its rows, so that the cost of a pass depends only
on what has changed."""

from collections.abc import Collection

from corral.domain.ids import QueueName
from corral.reconcile.cache.capacity import CapacityCache
from corral.reconcile.cache.node_offers import Offers
from corral.reconcile.cache.running_jobs import LiveJobs
from corral.reconcile.cache.seats import Seats
from corral.reconcile.cache.usage import UsageCache
from corral.reconcile.cache.waiting_jobs import Queued
from corral.reconcile.changeset import Draft
from corral.reconcile.usage import ChargedAllocation
from corral.schedule import Floor, NodeTypes
from corral.schedule.quota.balances import Standing


class Memo:
    """All caches that scheduling passes share. Each cache updates itself when it is
    used: a row that is still the same object is not read again. After a failed commit,
    the caches thus go back to the old rows together with the world. The decisions are
    the same without the caches.

    `floor`: nodes that accept work, with their free resources; `fleet`: all known
    nodes, whether they accept work or not. Both are as of the last update.
    """

    def __init__(self) -> None:
        self.queued, self.live, self._offers = Queued(), LiveJobs(), Offers()
        self._reset_caches()

    def _reset_caches(self) -> None:
        self._seats, self._rooms, self._holdings = (
            Seats(),
            CapacityCache(),
            UsageCache(),
        )
        self.floor, self.fleet = Floor(), NodeTypes([])

    def look(self, draft: Draft) -> None:
        """Update the caches to the rows of the draft."""
        try:
            self.fleet = self._offers.of(draft).fleet
            allocations, added_allocations = self._seats.see(draft)
            self._holdings.see(
                draft, self._seats, allocations, added_allocations, self.fleet
            )
            nodes = {
                allocation.seat.node
                for allocation in (*allocations, *added_allocations)
            }
            self.floor = self._rooms.of(draft, self._seats, nodes)
        except BaseException:  # the parts are in step with one another no more
            self._reset_caches()
            raise

    @property
    def held(self) -> Collection[ChargedAllocation]:
        """Return all allocations that are held and whose usage is not recorded yet."""
        return self._holdings.held.values()

    def standing_of(self, draft: Draft, over: frozenset[QueueName]) -> Standing:
        """Return the current quota and fair share of queues and users. `over`: queues
        whose budget is spent."""
        return self._holdings.standing(draft, self._offers.of(draft), over)
