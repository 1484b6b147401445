"""Free capacity that sleeping replicas lend. Only jobs that stop soon enough may start
there."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import NodeId
from corral.domain.reason_code import ReasonCode
from corral.domain.resources import Shape
from corral.domain.units import MILLIS_PER_GPU, counted_gpus
from corral.schedule.capacity.node_room import NodeRoom
from corral.schedule.placement.gang_placement import find_seats
from corral.schedule.waiting import Reason, Waiting

USUAL_GRACE_SECONDS: Final = 5  # that is advised, if it is short enough


@dataclass(frozen=True, slots=True, kw_only=True)
class LentSeat:
    """Seat of a sleeping replica, without what the replica keeps.

    Args:
        service: Name of its service.
        back_within_seconds: Time in which the replica must be ready again; None: no
            limit.
        stop_seconds: Time in which jobs on the seat must stop, so that the replica is
            ready in time; None: no limit.
    """

    seat: Seat
    service: str
    back_within_seconds: float | None = None
    stop_seconds: float | None = None

    def admits(self, stop_seconds: float) -> bool:
        """Return whether a job that stops within this time may use the seat."""
        return self.stop_seconds is None or stop_seconds <= self.stop_seconds


@dataclass(frozen=True, slots=True)
class SleepingRoom:
    """Seats that sleeping replicas lend with a limit, by node."""

    by_node: Mapping[NodeId, Sequence[LentSeat]] = field(default_factory=dict)

    @classmethod
    def of(cls, seats: Iterable[LentSeat]) -> "SleepingRoom":
        by_node: dict[NodeId, list[LentSeat]] = defaultdict(list)
        for lent in seats:
            if lent.stop_seconds is not None:
                by_node[lent.seat.node].append(lent)
        return cls(dict(by_node))

    def barred(self, gang: Waiting) -> int:
        """Return how many seats the gang may not use. Gangs with equal numbers are
        barred from the same seats."""
        return sum(
            not lent.admits(gang.stop_seconds)
            for seats in self.by_node.values()
            for lent in seats
        )

    def open_to(self, gang: Waiting, rooms: Sequence[NodeRoom]) -> Sequence[NodeRoom]:
        """Return the rooms, without the lent seats that the gang may not use. Changed
        rooms are copies."""
        return self._without(rooms, gang.stop_seconds) if self.by_node else rooms

    def closed(self, rooms: Sequence[NodeRoom]) -> Sequence[NodeRoom]:
        """Return the rooms without any lent seat. Changed rooms are copies."""
        return self._without(rooms, inf) if self.by_node else rooms

    def _without(self, rooms: Sequence[NodeRoom], stop: float) -> Sequence[NodeRoom]:
        return [self._narrowed(room, stop) for room in rooms]

    def _narrowed(self, room: NodeRoom, stop: float) -> NodeRoom:
        barred = [
            lent for lent in self.by_node.get(room.id, ()) if not lent.admits(stop)
        ]
        if not barred:
            return room
        narrowed = room.copy()
        for lent in barred:
            narrowed.take(lent.seat)  # also what others use there now
        return narrowed

    def held_back(
        self,
        gang: Waiting,
        shapes: Sequence[Shape],
        rooms: Callable[[int], Sequence[NodeRoom]],
    ) -> Reason | None:
        """Return the reason why the gang does not start although seats are free for it;
        None if it is not held back by lent seats.

        Args:
            rooms: Returns the rooms with this many thousandths of GPUs free.
        """
        if not self.barred(gang):
            return None
        for shape in shapes:
            seats = find_seats(rooms(shape.resources.gpu_millis), gang, shape)
            if seats:
                return self._reason(gang, seats)
        return None

    def _reason(self, gang: Waiting, seats: Sequence[Seat]) -> Reason | None:
        nodes = {seat.node for seat in seats}
        barred = [
            lent
            for node in sorted(nodes)
            for lent in self.by_node.get(node, ())
            if not lent.admits(gang.stop_seconds)
        ]
        if not barred:
            return None
        tightest = min(barred, key=lambda lent: lent.stop_seconds or 0.0)
        within = tightest.back_within_seconds or 0.0
        stop = max(0.0, tightest.stop_seconds or 0.0)
        millis = sum(seat.gpu_millis for seat in seats)
        is_single = 0 < millis <= MILLIS_PER_GPU
        verb, them = ("is", "it") if is_single else ("are", "them")
        subject = f"{counted_gpus(millis)} {verb}" if millis else "CPUs are"
        return Reason(
            code=ReasonCode.LENT_ROOM,
            sentence=f"{subject} free, but lent by service {tightest.service}, which "
            f"needs {them} back within {within:g} s: a job on {them} must stop "
            f"within {stop:.1f} s, and this job may take {gang.stop_seconds:.1f} s",
            suggestions=(_advice(tightest.service, stop),),
        )


def _advice(service: str, stop_seconds: float) -> str:
    """Return how a job could stop within this time, a second of which passes until the
    end of its ranks is seen."""
    grace = min(USUAL_GRACE_SECONDS, int(stop_seconds) - 1)
    if grace < 1:
        return f"wait for other GPUs, or set a longer back_within of service {service}"
    return f"set a shorter grace, in which the job saves and stops: grace: {grace}s"
