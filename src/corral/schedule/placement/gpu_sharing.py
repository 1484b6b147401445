"""Placement of GPU shares on the node where they waste least for the usual requests.

Waste on a node is measured as in `seat.cost` for columns. It counts the part of a GPU
that no usual share fits, and the GPUs that the node's free CPU and memory can no longer
support. Without requests for shares, nodes are chosen by best fit alone.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.resources import Shape
from corral.schedule.arrays.cluster import WHOLE
from corral.schedule.arrays.fit import share_waste
from corral.schedule.arrays.fragmentation import Demand, arrive, new_demand, stranded
from corral.schedule.capacity.node_room import NodeRoom
from corral.schedule.placement.gang_placement import may_use
from corral.schedule.waiting import Waiting

ENOUGH: Final = 64  # nodes that fit are weighed, the fullest first
MIB: Final = 1 << 20


class Shares:
    """The sizes of GPU shares that submitted jobs have requested. Jobs are counted from
    the first request for a share on."""

    def __init__(self) -> None:
        self._demand: Demand = new_demand()
        self.any = False  # whether any share was asked for yet

    def arrive(self, shape: Shape) -> None:
        """Count the request of a job that was submitted."""
        resources = shape.resources
        self.any = self.any or resources.is_share
        if self.any:
            share = resources.gpu_millis if resources.is_share else 0
            memory = resources.memory_bytes // MIB
            arrive(
                self._demand,
                resources.gpus,
                share,
                resources.cpu_millis,
                memory,
                shape.nodes,
            )

    def best(
        self, rooms: Sequence[NodeRoom], gang: Waiting, shape: Shape
    ) -> tuple[Seat, ...]:
        """Return the seat with the least waste for a gang of one node; empty if no node
        fits. `rooms` are in best-fit order."""
        min_whole_gpus = 0 if shape.resources.is_share else shape.resources.gpus
        rooms = [room for room in rooms if room.whole >= min_whole_gpus]
        able = (room for room in rooms if may_use(room, gang))
        seats = ((room, self._find_seat(room, gang, shape)) for room in able)
        fits = islice(
            ((room, seat) for room, seat in seats if seat is not None), ENOUGH
        )
        fitting_seats = [
            (self._seat_waste(room, seat, shape), fit_index, seat)
            for fit_index, (room, seat) in enumerate(fits)
        ]
        return (min(fitting_seats)[2],) if fitting_seats else ()

    def _find_seat(self, room: NodeRoom, gang: Waiting, shape: Shape) -> Seat | None:
        exclusive = gang.place.exclusive
        return room.seat(shape.resources, exclusive=exclusive, waste=self._share_waste)

    def _share_waste(self, taken: int, free: int) -> float:
        return float(share_waste(self._demand, taken, free))

    def _seat_waste(self, room: NodeRoom, seat: Seat, shape: Shape) -> float:
        """Return how many GPUs could no longer be used by usual jobs if this seat were
        taken, in addition to the GPUs of the seat itself. For each recent failure of
        the node, one GPU is added."""
        free_millis, cpu, memory = (
            sum(room.free_gpu_millis),
            room.free_cpu_millis,
            room.free_memory_bytes,
        )
        stranded_before = stranded(self._demand, free_millis, cpu, memory // MIB)
        stranded_after = stranded(
            self._demand,
            free_millis - seat.gpu_millis,
            cpu - seat.cpu_millis,
            (memory - seat.memory_bytes) // MIB,
        )
        waste = (stranded_after - stranded_before) / WHOLE + room.suspicion
        if shape.resources.is_share:
            rounded = seat.gpu_millis - shape.resources.gpu_millis
            free_of_gpu = room.free_gpu_millis[seat.gpus[0]]
            waste += self._share_waste(seat.gpu_millis, free_of_gpu) + rounded / WHOLE
        return waste
