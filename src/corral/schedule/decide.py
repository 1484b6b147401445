"""One pass: who is next by queue, priority, share and age; gangs whole; a place or a reason for
everybody; and who gives way to whom."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId
from corral.domain.queue import QueueTree
from corral.domain.resources import Shape
from corral.domain.units import gpus_text
from corral.schedule.buying import Buying
from corral.schedule.decision import Decision, Held, Placed
from corral.schedule.explain import explain
from corral.schedule.fleet import Fleet
from corral.schedule.gather import find_seats, nearest_to_free
from corral.schedule.groups import Groups
from corral.schedule.keys import Keys
from corral.schedule.learned import Learned
from corral.schedule.limits import Limits, holding_of
from corral.schedule.line import Line
from corral.schedule.room import Kept, NodeRoom
from corral.schedule.running import Running
from corral.schedule.shares import Shares
from corral.schedule.standing import Holding, Standing
from corral.schedule.victims import Preempted, Reserved, Victims
from corral.schedule.waiting import Reason, Waiting

PATIENCE_SECONDS: Final = 60.0  # so long may smaller gangs pass a bigger one that waits


def _fullness(room: NodeRoom) -> tuple[int, int, int, NodeId]:
    return room.fullness


@dataclass(slots=True)
class _Pass:
    """`open` is kept in the order of best fit: sorting it anew for each gang would cost most.

    `kept`: what of each node is taken for those with reserved seats, beyond what is used now.
    """

    rooms: dict[NodeId, NodeRoom]
    open: list[NodeRoom]
    now: float
    shunned: Set[str]  # names that some job wants to be apart from
    running_of_array: Counter[JobId]
    standing: Standing
    limits: Limits
    shares: Shares
    victims: Victims
    types: Mapping[NodeId, Sequence[str]]
    reserved: dict[JobId, Reserved] = field(default_factory=dict)
    kept: dict[JobId, list[tuple[NodeId, Kept]]] = field(default_factory=dict)
    kept_for: dict[JobId, Waiting] = field(default_factory=dict)
    refused: dict[tuple[object, ...], Reason] = field(default_factory=dict)
    reserved_for: JobId | None = None
    placed: list[Placed] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    newly_reserved: list[Reserved] = field(default_factory=list)
    dropped: list[JobId] = field(default_factory=list)


def decide(
    rooms: Iterable[NodeRoom],
    waiting: Groups | Sequence[Waiting],
    *,
    fleet: Fleet,
    now: float = 0.0,
    running_of_array: Mapping[JobId, int] | None = None,
    standing: Standing | None = None,
    learned: Learned | None = None,
    running: Callable[[], Sequence[Running]] = tuple,
    reserved: Sequence[Reserved] = (),
    shares: Shares | None = None,
) -> Decision:
    """Place whole gangs in the order of Line, within what their queues may hold; the fullest nodes
    first.

    `rooms` are the nodes that take work now, changed as gangs are placed; `fleet` is all that is
    known, to tell "not now" from "never"; `standing` what queues hold, changed as gangs are placed
    (None: there is one queue, without a limit). A gang that by `now` (wall clock) has waited longer
    than PATIENCE_SECONDS reserves the nodes that it is nearest to getting, so that smaller ones
    cannot starve it; jobs behind it may use the others. `learned` orders them by attained service
    (None: by age).

    `running` answers with those who might give way, and all that are stopping; it is asked only
    when a gang would have to wait. `reserved` is what earlier passes have kept for waiting gangs.
    `shares`: what parts of GPUs are usual, as far as that is known.
    """
    waiting = waiting if isinstance(waiting, Groups) else Groups(waiting)
    by_id = {room.id: room for room in rooms}
    shunned = {name for room in by_id.values() for name in room.shunned} | waiting.apart_from()
    waiting.tell_apart(shunned)
    kinds = tuple(sorted({kind for room in by_id.values() for kind in room.kinds}))
    standing = standing or Standing(
        QueueTree(), capacity=fleet.capacity, others={gangs[0].queue for gangs in waiting}
    )
    types = {room.id: room.types for room in by_id.values()}
    keys = Keys(standing.tree, learned)
    state = _Pass(
        rooms=by_id,
        open=[],
        now=now,
        shunned=shunned,
        standing=standing,
        limits=Limits(standing, kinds),
        shares=shares or Shares(),
        victims=Victims(running, standing, kinds, types, Buying(standing, keys, now)),
        types=types,
        running_of_array=Counter(running_of_array or {}),
    )
    _keep_all(state, waiting, reserved)
    state.open = sorted(by_id.values(), key=_fullness)
    line = Line(_runs(waiting, frozenset(state.reserved)), standing, keys, now)
    _take_turns(state, line, fleet)
    return Decision(
        placed=tuple(state.placed),
        held=tuple(state.held),
        preempted=tuple(state.preempted),
        reserved=tuple(state.newly_reserved),
        dropped=tuple(state.dropped),
    )


def _take_turns(state: _Pass, line: Line, fleet: Fleet) -> None:
    while (gang := line.next()) is not None:
        reason = _try(state, gang, fleet)
        if reason is not None:
            alike = () if gang.job in state.reserved else line.close()
            state.held.append(Held(gangs=(gang, *alike), reason=reason))


def _keep_all(state: _Pass, waiting: Groups, reserved: Sequence[Reserved]) -> None:
    for one in reserved:
        gang = waiting.get(one.job)
        if gang is not None:
            _keep(state, gang, one)
            state.victims.doom(one.victims)


def _runs(waiting: Groups, reserved: Set[JobId]) -> Iterator[Sequence[Waiting]]:
    """The groups; those for whom something is kept are tried each for itself."""
    for gangs in waiting:
        if reserved and any(gang.job in reserved for gang in gangs):
            yield from ([gang] for gang in gangs if gang.job in reserved)
            gangs = [gang for gang in gangs if gang.job not in reserved]
        if gangs:
            yield gangs


def _try(state: _Pass, gang: Waiting, fleet: Fleet) -> Reason | None:
    full = _array_is_full(state, gang)
    reserved = state.reserved.get(gang.job)
    if reserved is not None:
        return _try_reserved(state, gang, reserved, full)
    if full is not None:
        return full
    shapes = state.limits.shapes(gang)
    likeness = (shapes, *gang.likeness, gang.kin if gang.kin in state.shunned else "")
    if shapes and likeness not in state.refused and _place(state, gang, shapes):
        return None
    reserved = _make_way(state, gang, shapes)
    if reserved is not None:
        return _gives_way(reserved)
    if not shapes:
        return state.limits.reason(gang)
    if likeness in state.refused:
        return state.refused[likeness]
    free = "" if state.reserved_for is None else str(state.reserved_for)
    reason = explain(gang, state.open, fleet, behind=free)
    state.refused[likeness] = reason
    if state.now - gang.since >= PATIENCE_SECONDS and state.reserved_for is None:
        _reserve(state, gang)
    return reason


def _array_is_full(state: _Pass, gang: Waiting) -> Reason | None:
    if gang.array is None or gang.array_limit is None:
        return None
    running = state.running_of_array[gang.array]
    if running < gang.array_limit:
        return None
    sentence = f"its array runs {running} at once, which is its limit"
    return Reason(code="ArrayLimit", sentence=sentence)


def _place(state: _Pass, gang: Waiting, shapes: Sequence[Shape]) -> bool:
    may_be_any = state.shares.any and gang.mark is None and not (gang.avoid or gang.likes)
    for shape in shapes:
        if may_be_any and shape.nodes == 1 and shape.resources.gpu_millis:
            seats = state.shares.best(state.open, gang, shape)
        else:
            seats = find_seats(state.open, gang, shape)
        if seats:
            _take(state, gang, shape, seats)
            return True
    return False


# -- what is kept until others have given way ------------------------------------------------------


def _make_way(state: _Pass, gang: Waiting, shapes: Sequence[Shape]) -> Reserved | None:
    """Stop others for the gang, if it has a right to what they hold and starts then."""

    def rooms() -> list[NodeRoom]:
        """All that is reserved is taken in them, whoever holds it still; those are copies."""
        there = {seat.node for one in state.reserved.values() for seat in one.seats}
        copies = {room.id: room.copy() if room.id in there else room for room in state.open}
        for job, parts in state.kept.items():
            for node, kept in parts:
                if node in copies:
                    copies[node].let_go(kept)
            for seat in state.reserved[job].seats:
                if seat.node in copies:
                    gang = state.kept_for[job]
                    copies[seat.node].take(seat, kin=gang.kin, apart_from=gang.place.apart_from)
        return list(copies.values())

    way = state.victims.choose(gang, shapes or gang.shapes, rooms)
    if way is None:
        return None
    state.preempted += way.preempted
    state.newly_reserved.append(way.reserved)
    _keep(state, gang, way.reserved)
    return way.reserved


def _keep(state: _Pass, gang: Waiting, reserved: Reserved) -> None:
    """From here on nobody else gets these seats, nor what they are of the queue's own."""
    state.reserved[gang.job] = reserved
    parts = []
    for seat in reserved.seats:
        if seat.node in state.rooms:
            room, is_open = _lift(state, seat.node)
            kept = room.keep(seat, kin=gang.kin, apart_from=gang.place.apart_from)
            parts.append((seat.node, kept))
            _lay(state, room, is_open)
    state.kept[gang.job] = parts
    state.kept_for[gang.job] = gang
    state.standing.take(_holding(state, gang, reserved.seats))


def _holding(state: _Pass, gang: Waiting, seats: Sequence[Seat]) -> Holding:
    return holding_of(gang.queue, gang.user, seats, state.types, preemptible=gang.preemptible)


def _let_go(state: _Pass, job: JobId) -> None:
    for node, kept in state.kept.pop(job):
        room, is_open = _lift(state, node)
        room.let_go(kept)
        _lay(state, room, is_open)
    seats = state.reserved.pop(job).seats
    state.standing.give(_holding(state, state.kept_for.pop(job), seats))


def _try_reserved(
    state: _Pass, gang: Waiting, reserved: Reserved, full: Reason | None
) -> Reason | None:
    """Start it wherever it fits now; else its seats stay kept while they may still come free."""
    if reserved.pending and full is None:
        return _gives_way(reserved)
    _let_go(state, gang.job)
    shapes = state.limits.shapes(gang)
    if full is None and shapes and _place(state, gang, shapes):
        return None
    unheard = any(seat.node not in state.rooms for seat in reserved.seats)
    if full is None and (unheard or state.victims.is_due(gang, reserved)):
        _keep(state, gang, reserved)
        return _gives_way(reserved)
    state.dropped.append(gang.job)
    return full or Reason(code="Resources", sentence="what was kept for it is there no more")


def _gives_way(reserved: Reserved) -> Reason:
    who = ", ".join(reserved.victims) or "those who are stopping"
    gpus = sum(seat.gpu_millis for seat in reserved.seats)
    return Reason(
        code="Preempting",
        sentence=f"{gpus_text(gpus)} GPUs are kept for it and come free from {who}",
    )


def _lift(state: _Pass, node: NodeId) -> tuple[NodeRoom, bool]:
    """Take a node out of the order of best fit while what is free on it changes."""
    room = state.rooms[node]
    place = bisect_left(state.open, room.fullness, key=_fullness)
    is_open = place < len(state.open) and state.open[place] is room
    if is_open:
        del state.open[place]
    return room, is_open


def _lay(state: _Pass, room: NodeRoom, is_open: bool) -> None:
    if is_open:
        insort(state.open, room, key=_fullness)


def _take(state: _Pass, gang: Waiting, shape: Shape, seats: tuple[Seat, ...]) -> None:
    for seat in seats:
        room, is_open = _lift(state, seat.node)
        room.take(seat, kin=gang.kin, apart_from=gang.place.apart_from)
        _lay(state, room, is_open)
    port = state.rooms[seats[0].node].take_port()
    borrows = state.standing.take(_holding(state, gang, seats))
    placed = Placed(
        job=gang.job, shape=shape, seats=seats, port=port or 0, borrowed_millis=max(0, borrows)
    )
    state.placed.append(placed)
    if gang.array is not None:
        state.running_of_array[gang.array] += 1


def _reserve(state: _Pass, gang: Waiting) -> None:
    """Keep the nodes that are nearest to free for the gang; nobody behind it may use them.

    Where others have given way, or are about to, for somebody else, the nodes are not to be had.
    """
    awaited = {seat.node for one in state.reserved.values() for seat in one.seats}
    rooms = [room for id, room in state.rooms.items() if id not in awaited]
    kept = nearest_to_free(rooms, gang, gang.shapes[0])
    if kept:
        state.reserved_for = gang.job
        state.open = [room for room in state.open if room.id not in kept]
