"""One pass: who is next by queue, priority, share and age; gangs whole; a place or a reason for
everybody; and who gives way to whom."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId
from corral.domain.queue import Policy, QueueTree
from corral.domain.resources import Shape
from corral.domain.units import gpus_text
from corral.schedule.ahead import Ending, Promise
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
from corral.schedule.opened import Opened
from corral.schedule.promising import Promising, promised
from corral.schedule.room import Kept, NodeRoom
from corral.schedule.running import Running
from corral.schedule.shares import Shares
from corral.schedule.standing import Holding, Standing
from corral.schedule.victims import Preempted, Reserved, Victims
from corral.schedule.waiting import Reason, Waiting

PATIENCE_SECONDS: Final = 60.0  # so long may smaller gangs pass a bigger one that waits
_NO_ROOM: Final = ("Resources", "Topology", "Priority", "Preempting")  # not: it may not, or never


@dataclass(slots=True)
class _Pass:
    """`kept`: what of each node is taken for those with reserved seats, beyond what is used now."""

    rooms: dict[NodeId, NodeRoom]
    open: Opened
    promising: Promising
    now: float
    standing: Standing
    limits: Limits
    victims: Victims
    holding: Callable[[Waiting, Sequence[Seat]], Holding]
    shunned: Set[str] = frozenset()  # names that some job wants to be apart from
    running_of_array: Counter[JobId] = field(default_factory=Counter)
    shares: Shares = field(default_factory=Shares)
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
    ends: Callable[[], Sequence[Ending]] = tuple,
    known: Sequence[Promise] = (),
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
    `ends` answers with those who hold seats and will have ended at a known moment; it is asked only
    when somebody is to be promised a start. `known` is what earlier passes have promised. `shares`:
    what parts of GPUs are usual, as far as that is known.
    """
    waiting = waiting if isinstance(waiting, Groups) else Groups(waiting)
    by_id = {room.id: room for room in rooms}
    shunned = {name for room in by_id.values() for name in room.shunned} | waiting.apart_from()
    waiting.tell_apart(shunned)
    standing = standing or Standing(
        QueueTree(), capacity=fleet.capacity, others={gangs[0].queue for gangs in waiting}
    )
    keys = Keys(standing.tree, learned)
    buying = Buying(standing, keys, now)
    state = _new_pass(by_id, fleet.types, standing, running, ends, buying)
    state.shunned = shunned
    state.shares = shares or state.shares
    state.running_of_array.update(running_of_array or {})
    _keep_all(state, waiting, reserved)
    state.promising.load(known, waiting)
    is_kept = state.reserved.keys() | state.promising.told
    _take_turns(state, Line(_runs(waiting, is_kept), standing, keys, now), fleet)
    return Decision(
        placed=tuple(state.placed),
        held=tuple(state.held),
        preempted=tuple(state.preempted),
        reserved=tuple(state.newly_reserved),
        dropped=tuple(state.dropped),
        promised=state.promising.promises(),
    )


def _new_pass(
    rooms: dict[NodeId, NodeRoom],
    types: Mapping[NodeId, Sequence[str]],
    standing: Standing,
    running: Callable[[], Sequence[Running]],
    ends: Callable[[], Sequence[Ending]],
    buying: Buying,
) -> _Pass:
    kinds = tuple(sorted({kind for room in rooms.values() for kind in room.kinds}))

    def holding(gang: Waiting, seats: Sequence[Seat]) -> Holding:
        return holding_of(gang.queue, gang.user, seats, types, preemptible=gang.preemptible)

    opened = Opened(rooms)
    return _Pass(
        rooms=rooms,
        open=opened,
        promising=Promising(opened, standing, kinds, ends, holding, now=buying.now),
        now=buying.now,
        standing=standing,
        limits=Limits(standing, kinds),
        victims=Victims(running, standing, kinds, types, buying),
        holding=holding,
    )


def _take_turns(state: _Pass, line: Line, fleet: Fleet) -> None:
    while (gang := line.next()) is not None:
        reason = _try(state, gang, fleet)
        if reason is not None:
            is_kept = gang.job in state.reserved or gang.job in state.promising.told
            alike = () if is_kept else line.close()
            state.held.append(Held(gangs=(gang, *alike), reason=reason))
            if reason.code in _NO_ROOM and state.standing.tree.policy_of(gang.queue) == Policy.FIFO:
                _hold_behind(state, gang, line)


def _hold_behind(state: _Pass, gang: Waiting, line: Line) -> None:
    """Nobody passes it, but those for whom something is kept, which would stay kept."""
    behind = tuple(line.shut(state.reserved.keys() | state.promising.told))
    sentence = f"queue {gang.queue} goes strictly by age, and {gang.job} before it has no room yet"
    if behind:
        state.held.append(Held(gangs=behind, reason=Reason(code="Order", sentence=sentence)))


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
    before = state.promising.turn_to(gang)
    reserved = state.reserved.get(gang.job)
    if reserved is not None:
        return _try_reserved(state, gang, reserved, full)
    if full is not None:
        return full
    shapes = state.limits.shapes(gang)
    kin = gang.kin if gang.kin in state.shunned else ""
    likeness = (shapes, *gang.likeness, kin, state.open.view, gang.holds_seconds is None)
    if shapes and likeness not in state.refused and _place(state, gang, shapes):
        return None
    reserved = _make_way(state, gang, shapes)
    if reserved is not None:
        return _gives_way(reserved)
    promise = state.promising.promise(gang, before)
    if promise is not None and promise.start <= state.now:
        _start_promised(state, gang, promise)
        return None
    if promise is not None:
        return promised(promise)
    if not shapes:
        return state.limits.reason(gang)
    if likeness in state.refused:
        return state.refused[likeness]
    free = "" if state.reserved_for is None else str(state.reserved_for)
    reason = explain(gang, state.open.rooms, fleet, behind=free, idle=state.promising.idle())
    state.refused[likeness] = reason
    if state.now - gang.since >= PATIENCE_SECONDS and state.reserved_for is None:
        _reserve(state, gang)
    return reason


def _start_promised(state: _Pass, gang: Waiting, promise: Promise) -> None:
    """It has room since those who were told after it stepped aside."""
    state.promising.turn_to(gang)
    _take(state, gang, promise.shape, promise.seats)


def _array_is_full(state: _Pass, gang: Waiting) -> Reason | None:
    if gang.array is None or gang.array_limit is None:
        return None
    running = state.running_of_array[gang.array]
    if running < gang.array_limit:
        return None
    sentence = f"its array runs {running} at once, which is its limit"
    return Reason(code="ArrayLimit", sentence=sentence)


def _place(state: _Pass, gang: Waiting, shapes: Sequence[Shape]) -> bool:
    is_weighed = state.shares.any and gang.takes_any
    for shape in shapes:
        if is_weighed and shape.nodes == 1 and shape.resources.gpu_millis:
            seats = state.shares.best(state.open.rooms, gang, shape)
        else:
            seats = find_seats(state.open.rooms, gang, shape)
        if seats and state.promising.lets(gang, shape):
            _take(state, gang, shape, seats)
            return True
    return False


# -- what is kept until others have given way ------------------------------------------------------


def _make_way(state: _Pass, gang: Waiting, shapes: Sequence[Shape]) -> Reserved | None:
    """Stop others for the gang, if it has a right to what they hold and starts then."""

    def rooms() -> list[NodeRoom]:
        """All that is reserved is taken in them, whoever holds it still, and what is promised of a
        queue's own; those are copies."""
        firm = list(state.promising.firm())
        there = {seat.node for one in state.reserved.values() for seat in one.seats}
        there |= {seat.node for _, promise in firm for seat in promise.seats}
        true = [state.rooms[room.id] for room in state.open.rooms]
        copies = {room.id: room.copy() if room.id in there else room for room in true}
        for job, parts in state.kept.items():
            for node, kept in parts:
                if node in copies:
                    copies[node].let_go(kept)
            for seat in state.reserved[job].seats:
                if seat.node in copies:
                    gang = state.kept_for[job]
                    copies[seat.node].take(seat, kin=gang.kin, apart_from=gang.place.apart_from)
        for other, promise in firm:
            for seat in promise.seats:
                if seat.node in copies:
                    copies[seat.node].take(seat, kin=other.kin, apart_from=other.place.apart_from)
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
            with state.open.change(seat.node) as room:
                kept = room.keep(seat, kin=gang.kin, apart_from=gang.place.apart_from)
            parts.append((seat.node, kept))
    state.promising.keep(seat.node for seat in reserved.seats)
    state.kept[gang.job] = parts
    state.kept_for[gang.job] = gang
    state.standing.take(state.holding(gang, reserved.seats))


def _let_go(state: _Pass, job: JobId) -> None:
    for node, kept in state.kept.pop(job):
        with state.open.change(node) as room:
            room.let_go(kept)
    seats = state.reserved.pop(job).seats
    state.standing.give(state.holding(state.kept_for.pop(job), seats))
    state.limits.given_back()


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


def _take(state: _Pass, gang: Waiting, shape: Shape, seats: tuple[Seat, ...]) -> None:
    state.promising.begin(gang, seats)
    for seat in seats:
        with state.open.change(seat.node) as room:
            room.take(seat, kin=gang.kin, apart_from=gang.place.apart_from)
    port = state.rooms[seats[0].node].take_port()
    borrows = state.standing.take(state.holding(gang, seats))
    placed = Placed(
        job=gang.job, shape=shape, seats=seats, port=port or 0, borrowed_millis=max(0, borrows)
    )
    state.placed.append(placed)
    if gang.array is not None:
        state.running_of_array[gang.array] += 1


def _reserve(state: _Pass, gang: Waiting) -> None:
    """Keep for the gang what it can have first, or, where nobody knows when others end, the nodes
    that are nearest to free: nobody behind it may use them, but to be gone by then.

    Where others have given way, or are about to, for somebody else, the nodes are not to be had,
    nor where somebody is promised a start.
    """
    if state.promising.reserve(gang):
        state.reserved_for = gang.job
        return
    awaited = {seat.node for one in state.reserved.values() for seat in one.seats}
    awaited |= state.promising.nodes()
    rooms = [room for id, room in state.rooms.items() if id not in awaited]
    kept = nearest_to_free(rooms, gang, gang.shapes[0])
    if kept:
        state.reserved_for = gang.job
        state.open.shut(kept)
