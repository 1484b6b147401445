"""A day in virtual time: gangs come, are decided about by one pass after another, run and end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId
from corral.domain.node import Node
from corral.domain.queue import QueueTree
from corral.schedule import Decision, Fleet, NodeRoom, Waiting, decide
from corral.schedule.decide import PATIENCE_SECONDS
from corral.schedule.limits import holding_of
from corral.schedule.standing import Standing

LATEST: Final = 1e6  # seconds; a day that is not over by then never will be


@dataclass(frozen=True, slots=True, kw_only=True)
class Come:
    """A gang that comes at a moment, and runs for so long once it has a place."""

    gang: Waiting
    at: float
    runs_seconds: float


@dataclass(slots=True)
class Day:
    """`began`, `ended`: of the gangs that have. No gang ends before its time."""

    nodes: Sequence[Node]
    comes: Sequence[Come]
    tree: QueueTree = field(default_factory=QueueTree)
    now: float = 0.0
    began: dict[JobId, float] = field(default_factory=dict)
    ended: dict[JobId, float] = field(default_factory=dict)
    running: dict[JobId, tuple[Come, tuple[Seat, ...]]] = field(default_factory=dict)

    def live(self, *, until: Iterable[JobId] | None = None) -> None:
        """From the first to the last end; or until all of some have begun."""
        wanted = set(until if until is not None else (one.gang.job for one in self.comes))
        while not wanted <= (self.began if until is not None else self.ended).keys():
            self._pass()
            self.now = min(self._moments(), default=LATEST)
            assert self.now < LATEST, f"{wanted - self.began.keys()} never begin"
            self._end()

    @property
    def makespan_seconds(self) -> float:
        return max(self.ended.values())

    def waiting(self) -> list[Waiting]:
        return [
            replace(one.gang, since=one.at)
            for one in self.comes
            if one.at <= self.now and one.gang.job not in self.began
        ]

    def _moments(self) -> list[float]:
        """When something may be decided otherwise than now."""
        comes = [one for one in self.comes if one.gang.job not in self.began]
        some = [one.at for one in comes] + [one.at + PATIENCE_SECONDS for one in comes]
        some += [self._end_of(job) for job in self.running]
        return [at for at in some if at > self.now]

    def _end_of(self, job: JobId) -> float:
        return self.began[job] + self.running[job][0].runs_seconds

    def _end(self) -> None:
        for job in [job for job in self.running if self._end_of(job) <= self.now]:
            del self.running[job]
            self.ended[job] = self.now

    def rooms(self) -> list[NodeRoom]:
        rooms = {one.id: NodeRoom(one) for one in self.nodes}
        for come, seats in self.running.values():
            for seat in seats:
                gang = come.gang
                rooms[seat.node].take(seat, kin=gang.kin, apart_from=gang.place.apart_from)
        return list(rooms.values())

    def _decide(self) -> Decision:
        kinds = {one.id: [gpu.type for gpu in one.inventory.gpus] for one in self.nodes}
        holding = [
            holding_of(come.gang.queue, come.gang.user, seats, kinds)
            for come, seats in self.running.values()
        ]
        fleet = Fleet(self.nodes)
        standing = Standing(
            self.tree,
            capacity=fleet.capacity,
            kinds=sorted({kind for some in kinds.values() for kind in some}),
            holding=holding,
            others={one.gang.queue for one in self.comes},
        )
        return decide(self.rooms(), self.waiting(), fleet=fleet, now=self.now, standing=standing)

    def _pass(self) -> None:
        come = {one.gang.job: one for one in self.comes}
        for placed in self._decide().placed:
            self.began[placed.job] = self.now
            self.running[placed.job] = (come[placed.job], placed.seats)
        self._audit()

    def _audit(self) -> None:
        """All that runs has what it asked for, and nobody has what another has."""
        taken: set[tuple[NodeId, int]] = set()
        for come, seats in self.running.values():
            shape = come.gang.shapes[0]
            assert len({seat.node for seat in seats}) == shape.nodes == len(seats)
            for seat in seats:
                assert len(seat.gpus) == shape.resources.gpus
                mine = {(seat.node, index) for index in seat.gpus}
                assert not mine & taken
                taken |= mine
        for room in self.rooms():
            assert min(room.free_cpu_millis, room.free_memory_bytes) >= 0
