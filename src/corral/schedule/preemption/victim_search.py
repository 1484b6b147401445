"""The search for victims: on each node the least that makes room, then the cheapest nodes."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop
from typing import NamedTuple

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId
from corral.domain.resources import Shape
from corral.domain.usage import PreemptWhy
from corral.schedule.capacity.node_room import NodeRoom
from corral.schedule.placement.gang_placement import find_seats, groups, may_use
from corral.schedule.quota.balances import QuotaHolding, Standing
from corral.schedule.quota.limits import holding_of
from corral.schedule.running import RunningGang
from corral.schedule.waiting import Waiting


class Cost(NamedTuple):
    """Cost of stopping a gang; the least goes first. `usual`: 1 for one that is not preemptible;
    `work`: GPU-seconds. Then the priority, how far its queue is beyond its own (less costs more),
    and its start (earlier costs more)."""

    usual: int
    work: float
    priority: float
    over: float
    began: float


NOTHING = Cost(0, 0.0, float("-inf"), 0.0, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class VictimCandidate:
    """A running gang that might be stopped."""

    running: RunningGang
    holding: QuotaHolding
    cost: Cost

    @classmethod
    def of(
        cls, running: RunningGang, types: Mapping[NodeId, Sequence[str]], cost: Cost
    ) -> "VictimCandidate":
        """`types`: of each node's GPUs by index."""
        one = running
        holding = holding_of(one.queue, one.user, one.seats, types, preemptible=one.preemptible)
        return cls(running=one, holding=holding, cost=cost)


def on_nodes(some: Iterable[VictimCandidate]) -> Mapping[NodeId, Sequence[VictimCandidate]]:
    """Return the candidates with a seat on each node, the cheapest first."""
    found: dict[NodeId, list[VictimCandidate]] = defaultdict(list)
    for one in sorted(some, key=lambda one: one.cost):
        for seat in one.running.seats:
            found[seat.node].append(one)
    return found


def cost_of(some: Iterable[VictimCandidate]) -> Cost:
    """Return the cost of all of them together."""
    total = NOTHING
    for one in some:
        cost = one.cost
        total = Cost(
            max(total.usual, cost.usual),
            total.work + cost.work,
            max(total.priority, cost.priority),
            total.over + cost.over,
            total.began + cost.began,
        )
    return total


class VictimSet(NamedTuple):
    seats: tuple[Seat, ...]
    victims: tuple[tuple[VictimCandidate, PreemptWhy], ...]


@dataclass(slots=True)
class Search:
    """One gang in one shape. `right`: by what right it may take from one as things stand.

    The standing is changed while it searches, since who has given way borrows no more; in the end
    it is as it was.
    """

    standing: Standing
    gang: Waiting
    shape: Shape
    asked: tuple[tuple[str, int], ...]
    by_node: Mapping[NodeId, Sequence[VictimCandidate]]
    right: Callable[[VictimCandidate], PreemptWhy | None]
    chosen: dict[JobId, tuple[VictimCandidate, PreemptWhy]] = field(default_factory=dict)
    _freed: dict[NodeId, int] = field(default_factory=dict)

    def run(self, rooms: Sequence[NodeRoom]) -> VictimSet | None:
        """Return seats for the gang, with the victims; None when no solution exists."""
        for node, some in self.by_node.items():
            theirs = (seat for one in some for seat in one.running.seats if seat.node == node)
            self._freed[node] = sum(len(seat.gpus) for seat in theirs)
        if sum(map(self._could, rooms)) < self.shape.nodes:
            return None
        for group in groups(rooms, self.gang, self.shape):
            with self.standing.pretending():
                seats = self._in(group)
                victims = tuple(self.chosen.values())
                for one, _ in victims:
                    self.standing.take(one.holding)
            self.chosen.clear()
            if seats:
                return VictimSet(seats, victims)
        return None

    def _could(self, room: NodeRoom) -> bool:
        """Return whether the node could free the requested whole GPUs if all candidates
        stopped.

        A request for a share always passes this check.
        """
        asked = self.shape.resources
        return asked.is_share or room.whole + self._freed.get(room.id, 0) >= asked.gpus

    def _in(self, group: Sequence[NodeRoom]) -> tuple[Seat, ...]:
        nodes = self._nodes(group)
        if not nodes or not self._within_limits():
            return ()
        nodes = self._with_freed(nodes, group)
        seats = self._seats(nodes)
        if not seats:
            return ()
        for one, why in sorted(self.chosen.values(), key=lambda two: two[0].cost, reverse=True):
            self._spare(one)
            other = self._seats(nodes) if self._is_let() else ()
            if other:
                seats = other
            else:
                self._take(one, why)
        return seats

    def _nodes(self, group: Sequence[NodeRoom]) -> list[NodeRoom]:
        """The cheapest nodes; who is chosen on one may make room on another, too."""
        heap: list[tuple[Cost, int]] = []
        for place, room in enumerate(group):
            need = self._needed(room)
            if need is not None:
                heap.append((cost_of(need), place))
        if len(heap) < self.shape.nodes:
            return []
        heapify(heap)
        nodes: list[NodeRoom] = []
        while heap and len(nodes) < self.shape.nodes:
            _, place = heappop(heap)
            need = self._needed(group[place])
            if need is None:
                continue  # those chosen meanwhile have ended the right to take from others
            nodes.append(group[place])
            for one in need:
                self._take(one, self.right(one))
        return nodes if len(nodes) == self.shape.nodes else []

    def _with_freed(self, nodes: list[NodeRoom], group: Sequence[NodeRoom]) -> list[NodeRoom]:
        """Add the nodes that the victims also free: the gang may need fewer victims there.
        """
        known = {room.id for room in nodes}
        freed = {seat.node for one, _ in self.chosen.values() for seat in one.running.seats} - known
        return [*nodes, *(room for room in group if room.id in freed)] if freed else nodes

    def _needed(self, room: NodeRoom) -> list[VictimCandidate] | None:
        """Return which further candidates have to leave this node for a seat; None: all would be
        too few."""
        if not self._could(room):
            return None
        pretended = self._pretend(room)
        if self._seat(pretended) is not None:
            return []
        if room.id not in self.by_node:
            return None
        with self.standing.pretending():
            return self._least(pretended)

    def _least(self, room: NodeRoom) -> list[VictimCandidate] | None:
        """Return the candidates that have to leave this node for a seat, when at least one
        must.

        `room`: the node without the chosen victims.
        """
        pretended = room.copy()
        found: list[VictimCandidate] = []
        alone: VictimCandidate | None = None
        for one in self.by_node.get(room.id, ()):
            if one.running.job in self.chosen or self.right(one) is None:
                continue
            if alone is None and self._is_enough(room, one):
                alone = one
            found.append(one)
            self.standing.give(one.holding)
            _give(pretended, one)
            if self._seat(pretended) is not None:
                break
        for one in found:
            self.standing.take(one.holding)
        if self._seat(pretended) is None:
            return None if alone is None else [alone]
        for one in found[-2::-1]:  # the dearest that came before the last
            _take(pretended, one)
            if self._seat(pretended) is not None:
                found.remove(one)
            else:
                _give(pretended, one)
        if alone is not None and alone.cost < cost_of(found):
            return [alone]
        return found

    def _seat(self, room: NodeRoom) -> Seat | None:
        if not may_use(room, self.gang):
            return None
        return room.seat(self.shape.resources, exclusive=self.gang.place.exclusive)

    def _is_enough(self, room: NodeRoom, one: VictimCandidate) -> bool:
        """Whether this one alone makes room."""
        asked = self.shape.resources
        most = sum(len(seat.gpus) for seat in one.running.seats if seat.node == room.id)
        if not asked.is_share and room.whole + most < asked.gpus:
            return False
        pretended = room.copy()
        _give(pretended, one)
        return self._seat(pretended) is not None

    def _pretend(self, room: NodeRoom) -> NodeRoom:
        """The node without those chosen; the room itself, where none of them is."""
        gone = [
            one
            for one, _ in self.chosen.values()
            if any(seat.node == room.id for seat in one.running.seats)
        ]
        pretended = room.copy() if gone else room
        for one in gone:
            _give(pretended, one)
        return pretended

    def _seats(self, nodes: Sequence[NodeRoom]) -> tuple[Seat, ...]:
        rooms = [self._pretend(room) for room in nodes]
        return find_seats(rooms, self.gang, self.shape)

    def _within_limits(self) -> bool:
        """Stop as many more as the queue's limits need, the cheapest first."""
        everybody = {one.running.job: one for some in self.by_node.values() for one in some}
        for one in sorted(everybody.values(), key=lambda one: one.cost):
            if self._is_let():
                return True
            why = self.right(one)
            if one.running.job not in self.chosen and why is not None:
                self._take(one, why)
        return self._is_let()

    def _is_let(self) -> bool:
        gang = self.gang
        return self.standing.refusal(gang.queue, gang.user, self.asked) is None

    def _take(self, one: VictimCandidate, why: PreemptWhy | None) -> None:
        if why is not None:
            self.standing.give(one.holding)
            self.chosen[one.running.job] = (one, why)

    def _spare(self, one: VictimCandidate) -> None:
        self.standing.take(one.holding)
        del self.chosen[one.running.job]


def _give(room: NodeRoom, one: VictimCandidate) -> None:
    for seat in one.running.seats:
        if seat.node == room.id:
            room.give(seat, kin=one.running.kin, apart_from=one.running.apart_from)


def _take(room: NodeRoom, one: VictimCandidate) -> None:
    for seat in one.running.seats:
        if seat.node == room.id:
            room.take(seat, kin=one.running.kin, apart_from=one.running.apart_from)
