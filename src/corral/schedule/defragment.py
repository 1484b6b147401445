"""Relocation of running gangs so that a waiting gang fits. The cheapest relocations
found are chosen if all relocated gangs fit elsewhere now, the budget allows it, and the
waiting gang has waited as long as the relocation costs.

This is the live counterpart of `columns.defragment`. A relocation is a stop at a
checkpoint and a start elsewhere. Only one gang at a time is helped, so that each
decision can use the real cost of the one before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId
from corral.domain.resources import Shape
from corral.domain.time_point import moment_text
from corral.domain.units import MILLIS_PER_GPU, duration_text
from corral.domain.usage import PreemptWhy
from corral.schedule.capacity.node_room import NodeRoom
from corral.schedule.decision import Admission, Preempted, Reserved
from corral.schedule.placement.gang_placement import find_seats, groups
from corral.schedule.preemption.victim_search import (
    Cost,
    Search,
    VictimCandidate,
    VictimSet,
    on_nodes,
)
from corral.schedule.preemption.victims import Rooms
from corral.schedule.quota.balances import Standing
from corral.schedule.running import RunningGang
from corral.schedule.waiting import Reason, Waiting

_HOUR_SECONDS: Final = 3600.0
MOST_GANGS: Final = 4  # examined in a pass, the first of the line
MOST_DOMAINS: Final = 16  # sets of nodes tried for each gang
# searches in each, every one without those who had no place before
MOST_TRIES: Final = 4
MOST_MOVED: Final = 8  # gangs at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Movable:
    """A running gang that may be moved to other nodes: its description as if it waited,
    the shape in which it runs, and the cost of the move in GPU-seconds."""

    running: RunningGang
    gang: Waiting
    shape: Shape
    cost_gpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Movables:
    """All running gangs that may be moved now, the total budget for moves in
    GPU-seconds, and what is left of that budget. The list of gangs is empty while a
    move is in progress."""

    gangs: Sequence[Movable] = ()
    budget_gpu_seconds: float = 0.0
    left_gpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocated(Preempted):
    """A running job that is stopped in order to be started again at once on other seats
    (`to`)."""

    to: tuple[Seat, ...]
    shape: Shape
    gang: Waiting


@dataclass(frozen=True, slots=True)
class _Move:
    """A way to make room: the seats that the waiting gang gets, and the new seats of
    the running gangs that must leave them."""

    seats: tuple[Seat, ...]
    moved: tuple[tuple[Movable, tuple[Seat, ...]], ...]

    @property
    def cost_gpu_seconds(self) -> float:
        return sum(movable.cost_gpu_seconds for movable, _ in self.moved)

    @property
    def least_gpu_seconds(self) -> float:
        """Return the cost of the move if all gangs save right before it: only that of
        their restarts."""
        return self.cost_gpu_seconds - sum(
            movable.running.lost_gpu_seconds for movable, _ in self.moved
        )


class Relocating:
    """Chooses, in one scheduling pass, running gangs to move to other nodes so that a
    waiting gang fits. `now` is the wall clock. `ask` returns the gangs that may be
    moved; it is called when a gang would have to wait."""

    def __init__(
        self,
        ask: Callable[[], Movables] | None,
        standing: Standing,
        kinds: Sequence[str],
        types: Mapping[NodeId, Sequence[str]],
        *,
        now: float,
    ) -> None:
        self._ask = ask
        self._standing = standing
        self._kinds = kinds
        self._types = types
        self._now = now
        self._told: Movables | None = None
        self._candidates: list[VictimCandidate] = []
        self._looked_at: set[tuple[object, ...]] = set()
        self._is_done = False
        self._notes: dict[JobId, str] = {}

    def choose(
        self, gang: Waiting, shapes: Sequence[Shape], rooms: Rooms, stopped: Set[JobId]
    ) -> Admission | None:
        """Return how the gang starts in one of these shapes, which its queue may hold,
        after other gangs are relocated; None if no relocation makes that possible.

        `rooms` contain nothing that is reserved or promised, and are not changed.
        `stopped` holds the gangs preempted in this pass.
        """
        alike = (gang.priority, gang.likeness)
        if (
            self._ask is None
            or self._is_done
            or gang.preemptible
            or alike in self._looked_at
        ):
            return None
        if len(self._looked_at) >= MOST_GANGS:
            return None
        self._looked_at.add(alike)
        for shape in shapes:
            move = (
                self._cheapest_move(gang, shape, rooms(), stopped)
                if shape.gpu_millis
                else None
            )
            if move is not None:
                return self._admit_if_affordable(gang, shape, move)
        return None

    def told(self, gang: Waiting, reason: Reason) -> Reason:
        """Return the reason why the gang waits. If a relocation would help but is not
        possible now, the reason says why."""
        note = self._notes.get(gang.job)
        return (
            replace(reason, sentence=f"{reason.sentence}; {note}") if note else reason
        )

    def _all(self) -> Movables:
        if self._told is None:
            self._told = self._ask() if self._ask is not None else Movables()
        return self._told

    def _admit_if_affordable(
        self, gang: Waiting, shape: Shape, move: _Move
    ) -> Admission | None:
        movables, cost = self._all(), move.cost_gpu_seconds
        names = ", ".join(_name_of(movable.running) for movable, _ in move.moved)
        if cost > movables.left_gpu_seconds:
            left_gpu_seconds, budget = (
                movables.left_gpu_seconds,
                movables.budget_gpu_seconds,
            )
            self._notes[gang.job] = (
                f"moving {names} would make room, but costs more than is left of the "
                "budget for relocations: "
                f"{max(0.0, left_gpu_seconds) / _HOUR_SECONDS:.3g} of "
                f"{budget / _HOUR_SECONDS:g} GPU-hours in 24 hours"
            )
            return None
        wait_seconds = cost * MILLIS_PER_GPU / shape.gpu_millis
        if max(0.0, self._now - gang.since) < wait_seconds:
            self._notes[gang.job] = (
                f"moving {names} would make room; it happens when the job has waited as "
                f"long as the move costs, now {duration_text(wait_seconds)}: "
                f"{self._move_time_text(gang, shape, move)}"
            )
            return None
        self._is_done = True
        victims = tuple(movable.running.job for movable, _ in move.moved)
        return Admission(
            reserved=Reserved(
                job=gang.job, shape=shape, seats=move.seats, victims=victims
            ),
            preempted=tuple(
                Relocated(
                    job=movable.running.job,
                    by=gang.job,
                    why=PreemptWhy.ROOM,
                    lost_gpu_seconds=movable.running.lost_gpu_seconds,
                    to=to,
                    shape=movable.shape,
                    gang=movable.gang,
                )
                for movable, to in move.moved
            ),
        )

    def _move_time_text(self, gang: Waiting, shape: Shape, move: _Move) -> str:
        """Return when the relocation can happen, as text. Until the gangs to move save,
        the cost of moving them grows while the gang waits, so only the earliest moment
        is a fixed time."""
        earliest = (
            gang.since + move.least_gpu_seconds * MILLIS_PER_GPU / shape.gpu_millis
        )
        if earliest > self._now:
            return f"at {moment_text(earliest)} at the earliest, right after a save"
        return f"after the next save of {'each' if len(move.moved) > 1 else 'that job'}"

    # -- the search --------------------------------------------------------------------------------

    def _cheapest_move(
        self,
        gang: Waiting,
        shape: Shape,
        rooms: Sequence[NodeRoom],
        stopped: Set[JobId],
    ) -> _Move | None:
        if sum(sum(room.free_gpu_millis) for room in rooms) < shape.gpu_millis:
            return None  # by count alone there is no room for all
        able = self._eligible_gangs(gang, rooms, stopped)
        if not able:
            return None
        moves: list[_Move] = []
        for group_index, group in enumerate(groups(rooms, gang, shape)):
            if group_index >= MOST_DOMAINS:
                break
            move = self._in(group, gang, shape, dict(able), rooms)
            if move is not None:
                moves.append(move)
        return min(moves, key=lambda one: one.cost_gpu_seconds, default=None)

    def _eligible_gangs(
        self, gang: Waiting, rooms: Sequence[NodeRoom], stopped: Set[JobId]
    ) -> dict[JobId, Movable]:
        """Return the gangs that fit elsewhere now and have no higher priority."""
        fits: dict[tuple[object, ...], bool] = {}
        able_moves = {}
        ordered = sorted(rooms, key=lambda room: room.fullness)
        for movable in self._all().gangs:
            if (
                movable.running.priority > gang.priority
                or movable.running.job in stopped
            ):
                continue
            key = (movable.shape, movable.gang.likeness, movable.gang.kin)
            if key not in fits:
                fits[key] = bool(find_seats(ordered, movable.gang, movable.shape))
            if fits[key]:
                able_moves[movable.running.job] = movable
        return able_moves

    def _in(
        self,
        group: Sequence[NodeRoom],
        gang: Waiting,
        shape: Shape,
        able: dict[JobId, Movable],
        rooms: Sequence[NodeRoom],
    ) -> _Move | None:
        """Return the cheapest move within the nodes of `group`; None if there is no
        such move.

        If a moved gang finds no other seats, the next try leaves it in place.
        """
        for _ in range(MOST_TRIES):
            found_way = self._search_victims(gang, shape, able, group)
            if found_way is None or not 0 < len(found_way.victims) <= MOST_MOVED:
                return None
            moved = [
                able[victim_candidate.running.job]
                for victim_candidate, _ in found_way.victims
            ]
            settled, lost_job = _place_moved_gangs(gang, found_way.seats, moved, rooms)
            if lost_job is None:
                return _Move(found_way.seats, settled)
            del able[lost_job]
        return None

    def _search_victims(
        self,
        gang: Waiting,
        shape: Shape,
        able: Mapping[JobId, Movable],
        group: Sequence[NodeRoom],
    ) -> VictimSet | None:
        search = Search(
            standing=self._standing,
            gang=gang,
            shape=shape,
            asked=self._standing.asked_by(gang, shape, self._kinds),
            by_node=on_nodes(map(self._candidate, able.values())),
            right=lambda _: PreemptWhy.ROOM,
        )
        return search.run(group)

    def _candidate(self, one: Movable) -> VictimCandidate:
        running = one.running
        cost = Cost(0, one.cost_gpu_seconds, running.priority, 0.0, -running.started)
        return VictimCandidate.of(running, self._types, cost)


def _name_of(one: RunningGang) -> str:
    """Return the name of a running gang. For example: train (j3). A job of an array is
    shown with the array's name."""
    return f"{one.kin} ({one.job})" if one.kin else str(one.job)


Settled = tuple[tuple[Movable, tuple[Seat, ...]], ...]


def _place_moved_gangs(
    gang: Waiting,
    seats: Sequence[Seat],
    moved: Sequence[Movable],
    rooms: Sequence[NodeRoom],
) -> tuple[Settled, JobId | None]:
    """Return the new seats of the moved gangs once the gang has its seats, placed in
    order, the largest first. If a gang finds none, return its job as the second value.
    """
    pretended = _Pretended(rooms)
    for movable in moved:
        for seat in movable.running.seats:
            pretended.give(seat, movable.running)
    for seat in seats:
        pretended.take(seat, gang)
    settled_moves = []
    for movable in sorted(
        moved, key=lambda one: (-one.running.gpu_millis, one.running.job)
    ):
        to = find_seats(pretended.ordered(), movable.gang, movable.shape)
        if not to or set(to) == set(movable.running.seats):
            return (), movable.running.job
        for seat in to:
            pretended.take(seat, movable.gang)
        settled_moves.append((movable, to))
    return tuple(settled_moves), None


class _Pretended:
    """Copies of rooms in which placements are tried. The original rooms stay unchanged."""

    def __init__(self, rooms: Sequence[NodeRoom]) -> None:
        self._rooms = {room.id: room for room in rooms}
        self._own: set[NodeId] = set()

    def ordered(self) -> list[NodeRoom]:
        """Return the rooms, as changed so far, in the order of best fit."""
        return sorted(self._rooms.values(), key=lambda room: room.fullness)

    def give(self, seat: Seat, running: RunningGang) -> None:
        for room in self._copy_room(seat.node):
            room.give(seat, kin=running.kin, apart_from=running.apart_from)

    def take(self, seat: Seat, gang: Waiting) -> None:
        for room in self._copy_room(seat.node):
            room.take(seat, kin=gang.kin, apart_from=gang.place.apart_from)

    def _copy_room(self, node: NodeId) -> Iterator[NodeRoom]:
        """Yield the node's room as a copy that may be changed. Yield nothing if the
        node is not one of the given rooms."""
        if node not in self._rooms:
            return
        if node not in self._own:
            self._rooms[node] = self._rooms[node].copy()
            self._own.add(node)
        yield self._rooms[node]
