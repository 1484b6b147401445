"""Free capacity of each node that accepts work, kept from pass to pass. A node is
computed again only if its row, its seats or its use by other systems has changed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from typing import Final

from corral.domain.attempt import Allocation, Seat
from corral.domain.ids import NodeId
from corral.domain.job import Job
from corral.domain.node import Node
from corral.domain.node_fault import Restriction
from corral.reconcile.cache.seats import Seats
from corral.reconcile.changeset import Draft
from corral.reconcile.preemption.reservations import on_the_way
from corral.reconcile.sleeping_room import kept_for_sleepers
from corral.schedule import Floor, NodeRoom

SUSPECTED_SECONDS: Final = 86400.0  # time for which a failed node is chosen last

Coming = Mapping[NodeId, list[tuple[Job, Seat]]]


def suspicion_of(node: Node, now: float) -> int:
    """Return how suspicious the node is, as a count: how often it recently caused the
    end of an attempt, plus one if a fault makes other nodes preferable."""
    blamed = sum(
        now - failure_time < SUSPECTED_SECONDS for failure_time in node.failed_at
    )
    return blamed + (node.suspect or node.restriction != Restriction.OPEN)


class CapacityCache:
    """Nodes that accept work now, with their free resources.

    A node that has not sent a heartbeat to this head accepts none. It may be
    restarting, and would then lose any work that it was given.
    """

    def __init__(self) -> None:
        self._floor = Floor()
        self._nodes: dict[NodeId, Node] = {}
        self._heard: Set[NodeId] = frozenset()
        self._blamed: set[NodeId] = set()  # of these the suspicion passes with time
        self._coming: Coming = {}

    def of(self, draft: Draft, seats: Seats, changed: Iterable[NodeId]) -> Floor:
        """Return the nodes with their free resources. `changed`: nodes whose seats have
        changed since the last call."""
        dirty = set(changed) | self._see_nodes(draft) | self._see_coming(draft)
        dirty |= {id for id in self._blamed if self._is_trusted_anew(draft, id)}
        if dirty:
            node_rooms_by_node = {
                id: self._build_room(draft, id, seats) for id in dirty
            }
            added_rooms = [
                room for room in node_rooms_by_node.values() if room is not None
            ]
            self._floor = self._floor.changed(added_rooms, node_rooms_by_node.keys())
        return self._floor

    def _see_nodes(self, draft: Draft) -> set[NodeId]:
        nodes, nodes_by_node = draft.all_nodes(), self._nodes
        rows = [node for id, node in nodes.items() if nodes_by_node.get(id) is not node]
        heard = draft.facts.nodes.keys() - draft.facts.awaited
        dirty = {node.id for node in rows} | (heard ^ self._heard)
        if len(nodes_by_node) + sum(
            node.id not in nodes_by_node for node in rows
        ) > len(nodes):
            removed_ids = (
                nodes_by_node.keys() - nodes.keys()
            )  # they were to join, and that was not committed
            self._nodes = nodes_by_node = {
                id: node for id, node in nodes_by_node.items() if id not in removed_ids
            }
            self._blamed -= removed_ids
            dirty |= removed_ids
        self._heard = heard
        for node in rows:
            nodes_by_node[node.id] = node
            if node.failed_at or node.conditions:
                self._blamed.add(node.id)
        return dirty

    def _see_coming(self, draft: Draft) -> set[NodeId]:
        previous_arrivals, self._coming = self._coming, _coming_to(draft)
        nodes = previous_arrivals.keys() | self._coming.keys()
        return {id for id in nodes if previous_arrivals.get(id) != self._coming.get(id)}

    def _is_trusted_anew(self, draft: Draft, id: NodeId) -> bool:
        room = self._floor.by_id.get(id)
        known_suspicion = suspicion_of(self._nodes[id], draft.now.wall)
        return room is not None and room.suspicion != known_suspicion

    def _build_room(self, draft: Draft, id: NodeId, seats: Seats) -> NodeRoom | None:
        """Return the node's free resources; None if the node accepts no work."""
        node = draft.node(id)
        if node is None or id not in self._heard or not node.takes_work:
            return None
        room = NodeRoom(node, suspicion=suspicion_of(node, draft.now.wall))
        if not node.inventory.is_whole:
            room.lack()
        for allocation in seats.on(id):
            _occupy_seat(draft, room, allocation)
        for job, seat in self._coming.get(id, ()):
            room.take(seat, kin=job.spec.kin, apart_from=job.spec.place.apart_from)
        return room


def _coming_to(draft: Draft) -> Coming:
    coming_by_node: dict[NodeId, list[tuple[Job, Seat]]] = defaultdict(list)
    for job, seat in (*on_the_way(draft), *kept_for_sleepers(draft)):
        coming_by_node[seat.node].append((job, seat))
    return dict(coming_by_node)


def _occupy_seat(draft: Draft, room: NodeRoom, held: Allocation) -> None:
    job = draft.job(held.job)
    kin, apart_from = (
        (job.spec.kin, job.spec.place.apart_from) if job is not None else ("", ())
    )
    room.take(held.seat, kin=kin, apart_from=apart_from)
    room.hold_ports(held)
