"""Cache of what a head derives from its rows: a pass costs what has changed."""

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
    """Each part is a cache, made right at each look: a row that is still the same
    object needs no second one. So after a commit that failed it goes back with the
    rows; without it the same is decided.

    `floor`: nodes that take work, with what is free on them; `fleet`: all nodes that
    are known, whether they take work now or not. Both as of the last look.
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
        """Update the cache to the draft."""
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
        """All that is held and not yet charged."""
        return self._holdings.held.values()

    def standing_of(self, draft: Draft, over: frozenset[QueueName]) -> Standing:
        """Quota and fair share as they are now. `over`: queues whose budget is
        spent."""
        return self._holdings.standing(draft, self._offers.of(draft), over)
