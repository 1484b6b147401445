"""Free capacity of each node of a replay, updated whenever seats are taken or freed."""

from collections.abc import Iterable

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId
from corral.replay.simulated_job import SimulatedJob
from corral.replay.snapshot import Present
from corral.schedule import NodeRoom


class NodeStates:
    """States of all nodes of a replay. `free` maps each node that takes work to its
    free capacity. The jobs that hold seats at the beginning must be added before `open`
    is called."""

    def __init__(self, present: Present) -> None:
        self.nodes = {node.id: node for node in present.nodes}
        self.suspicion = present.suspicion
        self.free: dict[NodeId, NodeRoom] = {}
        self._closed = present.closed
        self._on: dict[NodeId, dict[JobId, tuple[SimulatedJob, Seat]]] = {
            id: {} for id in self.nodes
        }

    def open(self) -> None:
        """Compute the free capacity of all nodes that may take work."""
        for node in self.nodes.values():
            if node.takes_work and node.id not in self._closed:
                self.free[node.id] = self._build_room(node.id)

    @property
    def closed(self) -> frozenset[NodeId]:
        return frozenset(self.nodes.keys() - self.free.keys())

    def on(self, node: NodeId) -> list[SimulatedJob]:
        """Return the jobs with seats on the node."""
        return [job for job, _ in self._on[node].values()]

    def seat(self, job: SimulatedJob) -> None:
        """Record that the job holds its seats. The scheduling pass that assigned the
        seats has already subtracted them from the free capacity."""
        for seat in job.seats:
            self._on[seat.node][job.gang.job] = (job, seat)

    def leave(self, job: SimulatedJob) -> None:
        """Free the seats of the job."""
        gang = job.gang
        for seat in job.seats:
            del self._on[seat.node][gang.job]
            if seat.node in self.free:
                room = self.free[seat.node]
                room.give(seat, kin=gang.kin, apart_from=gang.place.apart_from)
        if job.port and job.seats[0].node in self.free:
            self.free[job.seats[0].node].give_port(job.port)

    def refill(self, nodes: Iterable[NodeId]) -> None:
        """Recompute the free capacity of the nodes from the seats of their running
        jobs. Reservations on these nodes are dropped."""
        for node in nodes:
            if node in self.free:
                self.free[node] = self._build_room(node)

    def _build_room(self, id: NodeId) -> NodeRoom:
        room = NodeRoom(self.nodes[id], suspicion=self.suspicion.get(id, 0))
        for job, seat in self._on[id].values():
            room.take(seat, kin=job.gang.kin, apart_from=job.gang.place.apart_from)
            if job.port in room.free_ports and job.seats[0].node == id:
                room.free_ports.remove(job.port)
        return room
