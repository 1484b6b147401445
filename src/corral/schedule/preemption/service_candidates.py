"""Running gangs that may be preempted by service in one pass, those with the worst keys
first."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from corral.domain.ids import QueueName, UserName
from corral.schedule.preemption.by_service import MARGIN, Buying
from corral.schedule.running import RunningGang
from corral.schedule.waiting import Waiting

Buyer = tuple[QueueName, UserName, int]  # its queue, its user and its priority


class _Lot(NamedTuple):
    """A running gang that may be preempted by service; gangs with a worse sort key come
    first. `at` is the gang's index among the running gangs, and `queue` is its
    queue."""

    minus_worth: float
    at: int
    queue: QueueName


class _Shelf(NamedTuple):
    """Running gangs that one preemptor may stop now if its key is better, the worst key
    first. `least`: for each entry, the lowest price in GPU-seconds up to that entry."""

    minus_worths: Sequence[float]
    ats: Sequence[int]
    least: Sequence[float]


class ServiceOffer(NamedTuple):
    """Running gangs that one waiting gang may preempt by service.

    `at`: the indices of these gangs, the worst key first. `cheapest`: the lowest price
    of one of them in GPU-seconds; None if there are no such gangs.
    """

    at: Sequence[int]
    cheapest: float | None


class Sales:
    """All running gangs that may be preempted by service, grouped by priority and by
    queues with a common order. A waiting gang thus examines only those that it may
    preempt."""

    def __init__(self, buying: Buying, running: Sequence[RunningGang]) -> None:
        self._buying = buying
        self._running = running
        lots: dict[tuple[QueueName, int], list[_Lot]] = defaultdict(list)
        for gang_index, running_gang in enumerate(running):
            if buying.is_for_sale(running_gang):
                lot = _Lot(-buying.worth(running_gang), gang_index, running_gang.queue)
                lots[self._line_key(running_gang.queue), running_gang.priority].append(
                    lot
                )
        self._lots = {line: sorted(line_lots) for line, line_lots in lots.items()}
        self._version: tuple[int, ...] = ()
        self._shelves: dict[Buyer, _Shelf] = {}

    def to(
        self,
        gang: Waiting,
        version: tuple[int, ...],
        stays: Callable[[RunningGang], bool],
    ) -> ServiceOffer:
        """Return the running gangs that this gang may preempt by service. `stays`
        returns whether a running gang is not about to stop. While `version` is
        unchanged, its answers and all holdings are unchanged too."""
        if self._version != version:
            self._version, self._shelves = version, {}
        buyer = (gang.queue, gang.user, gang.priority)
        if buyer not in self._shelves:
            self._shelves[buyer] = self._build_shelf(gang, stays)
        shelf = self._shelves[buyer]
        count = bisect_left(shelf.minus_worths, -(self._buying.offer(gang) * MARGIN))
        return ServiceOffer(
            shelf.ats[:count], shelf.least[count - 1] if count else None
        )

    def _build_shelf(
        self, gang: Waiting, stays: Callable[[RunningGang], bool]
    ) -> _Shelf:
        buying, running = self._buying, self._running
        sellers = {
            seller
            for seller in buying.sellers(gang.queue)
            if buying.deals(gang.queue, seller)
        }
        lots = [
            lot
            for lot in self._lots.get((self._line_key(gang.queue), gang.priority), ())
            if lot.queue in sellers
            and stays(running[lot.at])
            and buying.has_had_less(gang, running[lot.at])
        ]
        prices = (running[lot.at].price_gpu_seconds for lot in lots)
        return _Shelf(
            [lot.minus_worth for lot in lots],
            [lot.at for lot in lots],
            list(accumulate(prices, min)),
        )

    def _line_key(self, queue: QueueName) -> QueueName:
        """Return the key of the queue's group: the first of all queues that share its
        order by service."""
        return next(iter(self._buying.sellers(queue)))
