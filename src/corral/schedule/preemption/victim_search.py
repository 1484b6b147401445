"""The search for victims: on each node the smallest set that makes room, then the
cheapest nodes."""

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
    """Cost of stopping a gang; the lowest cost is stopped first. `usual`: 1 for a gang
    that is not preemptible, else 0; `work`: lost GPU-seconds.

    The further fields, compared in this order, are the priority, how far the gang's
    queue is beyond its own quota (less costs more), and the gang's start (earlier costs
    more).
    """

    usual: int
    work: float
    priority: float
    over: float
    began: float


CandidateKey = tuple[JobId, NodeId | None]
NOTHING = Cost(0, 0.0, float("-inf"), 0.0, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class VictimCandidate:
    """A running gang that might be stopped for a waiting gang, with the cost of
    stopping it. `seats` are those that it gives: all, or with `node` only those on this
    node, while the gang goes on with its others."""

    running: RunningGang
    holding: QuotaHolding
    cost: Cost
    seats: tuple[Seat, ...]
    node: NodeId | None = None

    @property
    def key(self) -> CandidateKey:
        return self.running.job, self.node

    @classmethod
    def of(
        cls,
        running: RunningGang,
        types: Mapping[NodeId, Sequence[str]],
        cost: Cost,
        *,
        seats: tuple[Seat, ...] | None = None,
        node: NodeId | None = None,
    ) -> "VictimCandidate":
        """Return the candidate for a running gang.

        Args:
            types: Types of each node's GPUs by index.
            seats: The seats that it gives; None: all.
            node: The node that it gives, if it goes on with its others.
        """
        given_seats = running.seats if seats is None else seats
        holding = holding_of(
            running.queue,
            running.user,
            given_seats,
            types,
            preemptible=running.preemptible,
        )
        return cls(
            running=running, holding=holding, cost=cost, seats=given_seats, node=node
        )


def on_nodes(
    some: Iterable[VictimCandidate],
) -> Mapping[NodeId, Sequence[VictimCandidate]]:
    """Return, for each node, the candidates with a seat on it, the cheapest first."""
    victim_candidates_by_node: dict[NodeId, list[VictimCandidate]] = defaultdict(list)
    for victim_candidate in sorted(some, key=lambda one: one.cost):
        for seat in victim_candidate.seats:
            victim_candidates_by_node[seat.node].append(victim_candidate)
    return victim_candidates_by_node


def cost_of(some: Iterable[VictimCandidate]) -> Cost:
    """Return the cost of stopping all these candidates together."""
    total = NOTHING
    for victim_candidate in some:
        cost = victim_candidate.cost
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
    """Searches for the running gangs that must be stopped (victims) so that one waiting
    gang fits in one shape.

    `right` returns the right by which the waiting gang may stop a candidate; None if it
    has no right. The standing is changed during the search, because a queue borrows
    less once its victims have ended, and is restored afterwards.
    """

    standing: Standing
    gang: Waiting
    shape: Shape
    asked: tuple[tuple[str, int], ...]
    by_node: Mapping[NodeId, Sequence[VictimCandidate]]
    right: Callable[[VictimCandidate], PreemptWhy | None]
    chosen: dict[CandidateKey, tuple[VictimCandidate, PreemptWhy]] = field(
        default_factory=dict
    )
    _freed: dict[NodeId, int] = field(default_factory=dict)

    def run(self, rooms: Sequence[NodeRoom]) -> VictimSet | None:
        """Return seats for the gang, with the victims to stop; None if no set of
        victims makes enough room."""
        for node, node_candidates in self.by_node.items():
            freed_seats = (
                seat
                for candidate in node_candidates
                for seat in candidate.seats
                if seat.node == node
            )
            self._freed[node] = sum(len(seat.gpus) for seat in freed_seats)
        if sum(map(self._can_free_gpus, rooms)) < self.shape.nodes:
            return None
        for group in groups(rooms, self.gang, self.shape):
            with self.standing.pretending():
                seats = self._in(group)
                victims = tuple(self.chosen.values())
                for victim_candidate, _ in victims:
                    self.standing.take(victim_candidate.holding)
            self.chosen.clear()
            if seats:
                return VictimSet(seats, victims)
        return None

    def _can_free_gpus(self, room: NodeRoom) -> bool:
        """Return whether the node would have as many whole GPUs as requested if all
        gangs on it that may be stopped ended. For a share of a GPU, this is not
        checked."""
        resources = self.shape.resources
        return (
            resources.is_share
            or room.whole + self._freed.get(room.id, 0) >= resources.gpus
        )

    def _in(self, group: Sequence[NodeRoom]) -> tuple[Seat, ...]:
        nodes = self._nodes(group)
        if not nodes or not self._within_limits():
            return ()
        nodes = self._with_freed(nodes, group)
        seats = self._seats(nodes)
        if not seats:
            return ()
        for victim_candidate, reason in sorted(
            self.chosen.values(), key=lambda two: two[0].cost, reverse=True
        ):
            self._spare(victim_candidate)
            other_seats = self._seats(nodes) if self._is_let() else ()
            if other_seats:
                seats = other_seats
            else:
                self._take(victim_candidate, reason)
        return seats

    def _nodes(self, group: Sequence[NodeRoom]) -> list[NodeRoom]:
        """Return the cheapest nodes of the group for the gang; empty if too few. A
        victim chosen on one node may make room on another too."""
        heap: list[tuple[Cost, int]] = []
        for room_index, room in enumerate(group):
            need = self._needed_victims(room)
            if need is not None:
                heap.append((cost_of(need), room_index))
        if len(heap) < self.shape.nodes:
            return []
        heapify(heap)
        nodes: list[NodeRoom] = []
        while heap and len(nodes) < self.shape.nodes:
            _, room_index = heappop(heap)
            need = self._needed_victims(group[room_index])
            if need is None:
                # those chosen meanwhile have ended the right to take from others
                continue
            nodes.append(group[room_index])
            for victim_candidate in need:
                self._take(victim_candidate, self._right_now(victim_candidate))
        return nodes if len(nodes) == self.shape.nodes else []

    def _with_freed(
        self, nodes: list[NodeRoom], group: Sequence[NodeRoom]
    ) -> list[NodeRoom]:
        """Return the nodes, extended by other nodes that the chosen victims leave: on
        these, fewer further victims may be needed."""
        node_ids = {room.id for room in nodes}
        freed = {
            seat.node
            for victim_candidate, _ in self.chosen.values()
            for seat in victim_candidate.seats
        } - node_ids
        return (
            [*nodes, *(room for room in group if room.id in freed)] if freed else nodes
        )

    def _needed_victims(self, room: NodeRoom) -> list[VictimCandidate] | None:
        """Return the victims that must still be chosen so that a seat fits on this
        node; None if even all candidates are not enough."""
        if not self._can_free_gpus(room):
            return None
        pretended = self._room_without_chosen(room)
        if self._seat_in_room(pretended) is not None:
            return []
        if room.id not in self.by_node:
            return None
        with self.standing.pretending():
            return self._minimal_victims(pretended)

    def _minimal_victims(self, room: NodeRoom) -> list[VictimCandidate] | None:
        """Return the fewest candidates that must leave this node for a seat; None if
        all are not enough. At least one must leave.

        `room`: the node without the chosen victims.
        """
        pretended = room.copy()
        victim_candidates: list[VictimCandidate] = []
        alone: VictimCandidate | None = None
        for victim_candidate in self.by_node.get(room.id, ()):
            if (
                victim_candidate.key in self.chosen
                or self._right_now(victim_candidate) is None
            ):
                continue
            if alone is None and self._is_enough(room, victim_candidate):
                alone = victim_candidate
            victim_candidates.append(victim_candidate)
            self.standing.give(victim_candidate.holding)
            _free_victim_seats(pretended, victim_candidate)
            if self._seat_in_room(pretended) is not None:
                break
        for victim_candidate in victim_candidates:
            self.standing.take(victim_candidate.holding)
        if self._seat_in_room(pretended) is None:
            return None if alone is None else [alone]
        # the dearest that came before the last
        for victim_candidate in victim_candidates[-2::-1]:
            _take(pretended, victim_candidate)
            if self._seat_in_room(pretended) is not None:
                victim_candidates.remove(victim_candidate)
            else:
                _free_victim_seats(pretended, victim_candidate)
        if alone is not None and alone.cost < cost_of(victim_candidates):
            return [alone]
        return victim_candidates

    def _seat_in_room(self, room: NodeRoom) -> Seat | None:
        if not may_use(room, self.gang):
            return None
        return room.seat(self.shape.resources, exclusive=self.gang.place.exclusive)

    def _is_enough(self, room: NodeRoom, one: VictimCandidate) -> bool:
        """Return whether stopping this candidate alone makes enough room on the node."""
        resources = self.shape.resources
        freed_gpus = sum(len(seat.gpus) for seat in one.seats if seat.node == room.id)
        if not resources.is_share and room.whole + freed_gpus < resources.gpus:
            return False
        pretended = room.copy()
        _free_victim_seats(pretended, one)
        return self._seat_in_room(pretended) is not None

    def _room_without_chosen(self, room: NodeRoom) -> NodeRoom:
        """Return the node's free capacity as if the chosen victims had left. It is a
        copy if one of them is on the node."""
        leaving_victims = [
            candidate
            for candidate, _ in self.chosen.values()
            if any(seat.node == room.id for seat in candidate.seats)
        ]
        pretended = room.copy() if leaving_victims else room
        for victim_candidate in leaving_victims:
            _free_victim_seats(pretended, victim_candidate)
        return pretended

    def _seats(self, nodes: Sequence[NodeRoom]) -> tuple[Seat, ...]:
        rooms = [self._room_without_chosen(room) for room in nodes]
        return find_seats(rooms, self.gang, self.shape)

    def _within_limits(self) -> bool:
        """Choose further victims, the cheapest first, as the queue's limits need.
        Return whether they now suffice."""
        everybody = {
            candidate.key: candidate
            for node_candidates in self.by_node.values()
            for candidate in node_candidates
        }
        for victim_candidate in sorted(everybody.values(), key=lambda one: one.cost):
            if self._is_let():
                return True
            reason = self._right_now(victim_candidate)
            if victim_candidate.key not in self.chosen and reason is not None:
                self._take(victim_candidate, reason)
        return self._is_let()

    def _is_let(self) -> bool:
        gang = self.gang
        return self.standing.refusal(gang.queue, gang.user, self.asked) is None

    def _take(self, one: VictimCandidate, why: PreemptWhy | None) -> None:
        if why is not None:
            self.standing.give(one.holding)
            self.chosen[one.key] = (one, why)

    def _spare(self, one: VictimCandidate) -> None:
        self.standing.take(one.holding)
        del self.chosen[one.key]

    def _right_now(self, one: VictimCandidate) -> PreemptWhy | None:
        """Return the right to the candidate; None without a right, and for a node of a
        gang that can give no more nodes than those already chosen."""
        if one.node is not None:
            node_count = sum(job == one.running.job for job, _ in self.chosen)
            if node_count >= one.running.spare_nodes:
                return None
        return self.right(one)


def _free_victim_seats(room: NodeRoom, one: VictimCandidate) -> None:
    for seat in one.seats:
        if seat.node == room.id:
            room.give(seat, kin=one.running.kin, apart_from=one.running.apart_from)


def _take(room: NodeRoom, one: VictimCandidate) -> None:
    for seat in one.seats:
        if seat.node == room.id:
            room.take(seat, kin=one.running.kin, apart_from=one.running.apart_from)
