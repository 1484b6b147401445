"""One pass: who is next by queue, priority, share and age; gangs whole; a place or a reason for
everybody."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId
from corral.domain.queue import QueueTree
from corral.domain.resources import Shape
from corral.schedule.explain import explain
from corral.schedule.fleet import Fleet
from corral.schedule.gather import find_seats, nearest_to_free
from corral.schedule.limits import Limits, holding_of
from corral.schedule.line import Line
from corral.schedule.room import NodeRoom
from corral.schedule.standing import Standing
from corral.schedule.waiting import Reason, Waiting

PATIENCE_SECONDS: Final = 60.0  # so long may smaller gangs pass a bigger one that waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A gang's seats, the first node first, and the port of its rendezvous there (0: none free).

    `borrowed_millis`: how much of its GPUs is not its queue's own.
    """

    job: JobId
    shape: Shape
    seats: tuple[Seat, ...]
    port: int
    borrowed_millis: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    job: JobId
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Every waiting job is in just one of the two."""

    placed: tuple[Placed, ...] = ()
    held: tuple[Held, ...] = ()


def _fullness(room: NodeRoom) -> tuple[int, int, int, NodeId]:
    return room.fullness


@dataclass(slots=True)
class _Pass:
    """`open` is kept in the order of best fit: sorting it anew for each gang would cost most."""

    rooms: dict[NodeId, NodeRoom]
    open: list[NodeRoom]
    shunned: frozenset[str]  # names that some job wants to be apart from
    running_of_array: Counter[JobId]
    standing: Standing
    limits: Limits
    refused: dict[tuple[object, ...], Reason] = field(default_factory=dict)
    reserved_for: JobId | None = None
    placed: list[Placed] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)


def decide(
    rooms: Iterable[NodeRoom],
    waiting: Sequence[Waiting],
    *,
    fleet: Fleet,
    running_of_array: Mapping[JobId, int] | None = None,
    standing: Standing | None = None,
) -> Decision:
    """Place whole gangs in the order of Line, within what their queues may hold; the fullest nodes
    first.

    `rooms` are the nodes that take work now, changed as gangs are placed; `fleet` is all that is
    known, to tell "not now" from "never"; `standing` what queues hold, changed as gangs are placed
    (None: there is one queue, without a limit). A gang that has waited longer than
    PATIENCE_SECONDS reserves the nodes that it is nearest to getting, so that smaller ones cannot
    starve it; jobs behind it may use the others.
    """
    by_id = {room.id: room for room in rooms}
    kinds = tuple(sorted({kind for room in by_id.values() for kind in room.kinds}))
    standing = standing or Standing(
        QueueTree(), capacity=fleet.capacity, others={gang.queue for gang in waiting}
    )
    state = _Pass(
        rooms=by_id,
        open=sorted(by_id.values(), key=_fullness),
        shunned=frozenset(
            [name for room in by_id.values() for name in room.shunned]
            + [name for gang in waiting for name in gang.place.apart_from]
        ),
        standing=standing,
        limits=Limits(standing, kinds),
        running_of_array=Counter(running_of_array or {}),
    )
    line = Line(waiting, standing)
    while (gang := line.next()) is not None:
        reason = _try(state, gang, fleet)
        if reason is not None:
            state.held.append(Held(job=gang.job, reason=reason))
    return Decision(placed=tuple(state.placed), held=tuple(state.held))


def _try(state: _Pass, gang: Waiting, fleet: Fleet) -> Reason | None:
    if gang.array is not None and gang.array_limit is not None:
        running = state.running_of_array[gang.array]
        if running >= gang.array_limit:
            return Reason(
                code="ArrayLimit",
                sentence=f"its array runs {running} at once, which is its limit",
            )
    shapes = state.limits.shapes(gang)
    if not shapes:
        return state.limits.reason(gang)
    likeness = (shapes, *gang.likeness, gang.kin if gang.kin in state.shunned else "")
    if likeness in state.refused:
        return state.refused[likeness]
    for shape in shapes:
        seats = find_seats(state.open, gang, shape)
        if seats:
            _take(state, gang, shape, seats)
            return None
    free = "" if state.reserved_for is None else str(state.reserved_for)
    reason = explain(gang, state.open, fleet, behind=free)
    state.refused[likeness] = reason
    if gang.waited_seconds >= PATIENCE_SECONDS and state.reserved_for is None:
        _reserve(state, gang)
    return reason


def _take(state: _Pass, gang: Waiting, shape: Shape, seats: tuple[Seat, ...]) -> None:
    for seat in seats:
        room = state.rooms[seat.node]
        del state.open[bisect_left(state.open, room.fullness, key=_fullness)]
        room.take(seat, kin=gang.kin, apart_from=gang.place.apart_from)
        insort(state.open, room, key=_fullness)
    port = state.rooms[seats[0].node].take_port()
    types = {room.id: room.types for room in (state.rooms[seat.node] for seat in seats)}
    borrows = state.standing.take(holding_of(gang.queue, gang.user, seats, types))
    placed = Placed(
        job=gang.job, shape=shape, seats=seats, port=port or 0, borrowed_millis=max(0, borrows)
    )
    state.placed.append(placed)
    if gang.array is not None:
        state.running_of_array[gang.array] += 1


def _reserve(state: _Pass, gang: Waiting) -> None:
    """Keep the nodes that are nearest to free for the gang; nobody behind it may use them."""
    kept = nearest_to_free(state.rooms.values(), gang, gang.shapes[0])
    if kept:
        state.reserved_for = gang.job
        state.open = [room for room in state.open if room.id not in kept]
