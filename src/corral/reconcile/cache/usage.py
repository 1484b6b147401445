"""Current usage of queues and users, kept from pass to pass and updated by the changes."""

from collections import Counter
from collections.abc import Iterable, Mapping

from corral.domain.attempt import Allocation
from corral.domain.ids import QueueName
from corral.domain.queue_tree import QueueTree
from corral.domain.world import AllocationKey
from corral.reconcile.cache.node_offers import NodeOffers
from corral.reconcile.cache.seats import Seats
from corral.reconcile.changeset import Draft
from corral.reconcile.usage import (
    ChargedAllocation,
    held_by,
    owing_now,
    past_of,
    queues_named,
    stripped_of,
    types_of,
)
from corral.schedule import NodeTypes
from corral.schedule.quota.balances import Leaf, Standing
from corral.schedule.quota.fair_share import ResourceAmounts

Basis = tuple[
    ResourceAmounts, frozenset[str], frozenset[QueueName], frozenset[QueueName]
]


class UsageCache:
    """Current usage of queues and users. Callers report in each pass which seats have
    changed."""

    def __init__(self) -> None:
        self.held: dict[AllocationKey, ChargedAllocation] = {}
        self._kinds: Counter[str] = Counter()
        self._queues: Counter[QueueName] = Counter()
        self._fleet: NodeTypes | None = None  # by whose types of GPUs they are counted
        self._tree: QueueTree | None = None
        self._basis: Basis | None = None
        self._standing: Standing | None = None  # without the past

    def see(
        self,
        draft: Draft,
        seats: Seats,
        left: Iterable[Allocation],
        come: Iterable[Allocation],
        fleet: NodeTypes,
    ) -> None:
        if fleet is not self._fleet:
            self.__init__()  # type: ignore[misc]
            self._fleet, left, come = fleet, (), seats.all()
        for allocation in left:
            removed_charge = self.held.pop(allocation.key, None)
            if removed_charge is not None:
                self._count(removed_charge, -1)
        types = types_of(draft)
        for allocation in come:
            added_charge = held_by(draft, allocation, types)
            if added_charge is not None:
                self.held[allocation.key] = added_charge
                self._count(added_charge, 1)

    def _count(self, one: ChargedAllocation, sign: int) -> None:
        holding = one.holding
        self._queues[holding.queue] += sign
        for kind, _ in holding.gpu_millis:
            self._kinds[kind] += sign
        if self._standing is None:
            return
        if holding.queue not in self._standing.rows.row_of:
            self._standing = None
        elif sign > 0:
            self._standing.take(holding)
        else:
            self._standing.give(holding)

    def standing(
        self, draft: Draft, offered: NodeOffers, over: frozenset[QueueName]
    ) -> Standing:
        """Return the current quota and fair share of queues and users. `over`: queues
        whose budget is spent."""
        past = past_of(draft, self.held.values())
        basis = self._basis_of(draft, offered, over, past)
        if (
            self._standing is None
            or self._tree is not draft.tree
            or basis != self._basis
        ):
            self._tree, self._basis = draft.tree, basis
            capacity, kinds, stripped, unknown_queues = basis
            self._standing = Standing(
                draft.tree,
                capacity=capacity,
                kinds=kinds,
                holding=[
                    charged_allocation.holding
                    for charged_allocation in self.held.values()
                ],
                stripped=stripped,
                others=unknown_queues,
            )
        return self._standing.with_past(past, owing_now(draft))

    def _basis_of(
        self,
        draft: Draft,
        offered: NodeOffers,
        over: frozenset[QueueName],
        past: Mapping[Leaf, ResourceAmounts],
    ) -> Basis:
        kinds = {*offered.kinds, *(+self._kinds)}
        queue_names = {
            *queues_named(draft),
            *(+self._queues),
            *(queue for queue, _ in past),
        }
        unknown_queues = frozenset(queue_names - draft.tree.by_name.keys())
        return (
            offered.capacity,
            frozenset(kinds),
            stripped_of(draft, over),
            unknown_queues,
        )
