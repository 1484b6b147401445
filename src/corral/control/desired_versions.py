"""Versions of the desired states that the head has sent to the nodes, and search for
the nodes whose desired state a change affects."""

from collections import defaultdict
from collections.abc import Iterable

from corral.domain.attempt import Allocation, SeatState
from corral.domain.desired_state import DesiredState, Version
from corral.domain.ids import JobId, NodeId
from corral.domain.node import Node
from corral.domain.observed_state import NodeFacts
from corral.domain.world import AllocationKey, Changes, World
from corral.reconcile import grounds_of, wanted_of


class Book:
    """Holds the newest desired state of each node while one head leads. Each new
    desired state gets the next version number."""

    def __init__(self) -> None:
        self._counter = 0
        self._told: dict[NodeId, DesiredState] = {}
        self._held: dict[NodeId, dict[AllocationKey, Allocation]] = defaultdict(dict)
        self._nodes_of: dict[JobId, set[NodeId]] = defaultdict(set)
        self._grounds: dict[NodeId, list[object]] = {}  # of the last desired state
        self._addresses: dict[NodeId, str] = {}
        self._indexed = False

    def index(self, world: World, changes: Changes) -> None:
        """Update the index of allocations by node with the changes of a commit. With
        the index, the desired state of one node is built without a search through all
        nodes."""
        if not self._indexed:
            self._indexed = True
            self._index(world.allocations.values())
            self._see_addresses(world.nodes.values())
        self._index(changes.allocations)
        self._see_addresses(changes.nodes, changes.removed)

    def _index(self, allocations: Iterable[Allocation]) -> None:
        for allocation in allocations:
            if allocation.state == SeatState.RELEASED:
                self._held[allocation.seat.node].pop(allocation.key, None)
            else:
                self._held[allocation.seat.node][allocation.key] = allocation
                self._nodes_of[allocation.job].add(allocation.seat.node)

    def _see_addresses(
        self, nodes: Iterable[Node], removed: Iterable[NodeId] = ()
    ) -> None:
        """Note the addresses of nodes. If an address has changed, build all desired
        states again, because each gang receives the addresses of its nodes."""
        addresses = {node.id: node.address for node in nodes}
        addresses.update(dict.fromkeys(removed, ""))
        if any(self._addresses.get(id) != address for id, address in addresses.items()):
            self._grounds.clear()
        self._addresses.update(addresses)

    def concerned(self, changes: Changes, touched: Iterable[JobId]) -> set[NodeId]:
        """Return the nodes whose desired state may have changed because of a commit or
        of these jobs. Call it after every commit, because it also drops ended jobs from
        its index."""
        jobs = {job.id for job in changes.jobs} | {save.job for save in changes.saves}
        jobs |= {
            row.job
            for service in changes.services
            for row in service.replicas
            if row.finished_attempt
        }
        nodes = {
            node for job in jobs | set(touched) for node in self._nodes_of.get(job, ())
        }
        for job in changes.jobs:
            if job.is_final:
                self._nodes_of.pop(job.id, None)
        nodes |= {node.id for node in changes.nodes if node.checkups}
        return nodes | {allocation.seat.node for allocation in changes.allocations}

    def renewed(
        self, world: World, node: NodeId, heard: NodeFacts | None
    ) -> DesiredState | None:
        """Return the node's desired state with a new version if it has changed since
        the last call for this node; None if it is unchanged."""
        last_state, held_launches = self._told.get(node), self._held[node].values()
        grounds = grounds_of(world, node, held_launches, heard)
        if last_state is not None and grounds == self._grounds.get(node):
            return None
        self._grounds[node] = grounds
        version = (
            last_state.version if last_state else Version(term=world.term, counter=0)
        )
        desired_state = wanted_of(world, node, held_launches, heard, version)
        if desired_state == last_state:
            return None
        self._counter += 1
        version = Version(term=world.term, counter=self._counter)
        self._told[node] = wanted_of(world, node, held_launches, heard, version)
        return self._told[node]

    def newest(
        self, world: World, node: NodeId, heard: NodeFacts | None
    ) -> DesiredState:
        self.index(world, Changes())
        self.renewed(world, node, heard)
        return self._told[node]
