"""A day in virtual time: gangs come, are decided about by one pass after another, run
and end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId
from corral.domain.node import Node
from corral.domain.queue_tree import QueueTree
from corral.schedule import (
    Decision,
    NodeRoom,
    NodeTypes,
    Promise,
    SeatEnd,
    Waiting,
    decide,
)
from corral.schedule.decide import RESERVE_AFTER_SECONDS
from corral.schedule.quota.balances import QuotaHolding, Standing
from corral.schedule.quota.limits import holding_of

LATEST: Final = 1e6  # seconds; a day that is not over by then never will be


@dataclass(frozen=True, slots=True, kw_only=True)
class Come:
    """A gang that comes at a moment, and runs for so long once it has a place."""

    gang: Waiting
    at: float
    runs_seconds: float


@dataclass(slots=True)
class Day:
    """`began`, `ended`: of the gangs that have. No gang ends before its time.

    `promised`: what the last pass has promised; `first`: the start that each was told
    first. `slip_seconds`: each look finds an end by so much later, at the most, than
    another.
    """

    nodes: Sequence[Node]
    comes: Sequence[Come]
    tree: QueueTree = field(default_factory=QueueTree)
    slip_seconds: float = 0.0
    now: float = 0.0
    began: dict[JobId, float] = field(default_factory=dict)
    ended: dict[JobId, float] = field(default_factory=dict)
    running: dict[JobId, tuple[Come, tuple[Seat, ...]]] = field(default_factory=dict)
    promised: dict[JobId, Promise] = field(default_factory=dict)
    first: dict[JobId, float] = field(default_factory=dict)
    last: Decision = field(default_factory=Decision)

    def live(self, *, until: Iterable[JobId] | None = None) -> None:
        """From the first to the last end; or until all of some have begun."""
        wanted = set(
            until if until is not None else (one.gang.job for one in self.comes)
        )
        while not wanted <= (self.began if until is not None else self.ended).keys():
            self.step()
            self.forward()
            assert self.now < LATEST, f"{wanted - self.began.keys()} never begin"

    def forward(self) -> None:
        """To the next moment at which something may be decided otherwise."""
        self.now = min(self._moments(), default=LATEST)
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
        some = [one.at for one in comes] + [
            one.at + RESERVE_AFTER_SECONDS for one in comes
        ]
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
                rooms[seat.node].take(
                    seat, kin=gang.kin, apart_from=gang.place.apart_from
                )
        return list(rooms.values())

    def _holding(self, come: Come, seats: Sequence[Seat]) -> QuotaHolding:
        kinds = {one.id: [gpu.type for gpu in one.inventory.gpus] for one in self.nodes}
        return holding_of(come.gang.queue, come.gang.user, seats, kinds)

    def _ends(self) -> list[SeatEnd]:
        """Those of whom a limit is known."""
        return [
            SeatEnd(
                job=job,
                seats=seats,
                until=self.began[job] + come.gang.holds_seconds + self._slip(job),
                holding=self._holding(come, seats),
                kin=come.gang.kin,
                apart_from=come.gang.place.apart_from,
            )
            for job, (come, seats) in self.running.items()
            if come.gang.holds_seconds is not None
        ]

    def _slip(self, job: JobId) -> float:
        return self.slip_seconds * Random(f"{job} {self.now}").random()

    def _decide(self) -> Decision:
        holding = [self._holding(come, seats) for come, seats in self.running.values()]
        fleet = NodeTypes(self.nodes)
        standing = Standing(
            self.tree,
            capacity=fleet.capacity,
            kinds=sorted(
                {gpu.type for one in self.nodes for gpu in one.inventory.gpus}
            ),
            holding=holding,
            others={one.gang.queue for one in self.comes},
        )
        return decide(
            self.rooms(),
            self.waiting(),
            fleet=fleet,
            now=self.now,
            standing=standing,
            ends=self._ends,
            known=list(self.promised.values()),
        )

    def step(self) -> None:
        come = {one.gang.job: one for one in self.comes}
        self.last = self._decide()
        for placed in self.last.placed:
            self.began[placed.job] = self.now
            self.running[placed.job] = (come[placed.job], placed.seats)
        self._audit()
        self._audit_promises()

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

    def _audit_promises(self) -> None:
        """A promise is kept: it is only ever brought forward, until the gang begins."""
        before, self.promised = (
            self.promised,
            {one.job: one for one in self.last.promised},
        )
        for job, promise in before.items():
            if job in self.began:
                assert self.began[job] <= promise.start + self.slip_seconds
            else:
                assert job in self.promised
                assert (
                    self.promised[job].start <= self.first[job] + self.slip_seconds
                ), job
                assert self.now < promise.start + self.slip_seconds, job
        for job, promise in self.promised.items():
            self.first.setdefault(job, promise.start)
