"""One scheduling pass: order the gangs by queue, priority, share and age; place whole
gangs; preempt.

Every gang gets a place or a reason why it waits.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId
from corral.domain.queue_policy import Policy
from corral.domain.reason_code import NO_ROOM, ReasonCode
from corral.domain.resources import Shape
from corral.schedule.backfill.promises import Promising, promised
from corral.schedule.capacity.free_capacity import Floor
from corral.schedule.capacity.node_room import NodeRoom, ReservedCapacity
from corral.schedule.decision import (
    Decision,
    Placed,
    Preempted,
    Reserved,
    Shrunk,
    Unplaced,
)
from corral.schedule.defragment import Movables, Relocated, Relocating
from corral.schedule.explain import UNTOLD, deciding, explain, gives_way, reasons_decide
from corral.schedule.job_groups import Groups
from corral.schedule.order.priority_key import PriorityKeys
from corral.schedule.order.queue_order import QueueLine
from corral.schedule.placement.availability import Promise, SeatEnd
from corral.schedule.placement.gang_placement import find_seats, nearest_to_free
from corral.schedule.placement.gpu_sharing import Shares
from corral.schedule.placement.locality import Nearness
from corral.schedule.placement.node_types import NodeTypes
from corral.schedule.placement.pass_view import PassView
from corral.schedule.placement.sleeping_room import LentSeat, SleepingRoom
from corral.schedule.prediction.runtime_model import Learned
from corral.schedule.preemption.by_service import Buying
from corral.schedule.preemption.candidates import Roster
from corral.schedule.preemption.unreserved_rooms import unreserved_rooms
from corral.schedule.preemption.victims import Ground, Victims
from corral.schedule.quota.balances import QuotaHolding, Standing
from corral.schedule.quota.limits import QueueLimits, holding_of, unlimited
from corral.schedule.running import RunningGang
from corral.schedule.waiting import Reason, Waiting, behind_older, full_array

# time for which smaller gangs may pass a larger one that waits
RESERVE_AFTER_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Pass:
    """State of one scheduling pass. `kept` is the capacity that is reserved on each
    node for gangs with reserved seats, beyond what running jobs use."""

    rooms: Mapping[NodeId, NodeRoom]
    fleet: NodeTypes
    open: PassView
    promising: Promising
    now: float
    standing: Standing
    limits: QueueLimits
    victims: Victims
    relocating: Relocating
    nearness: Nearness
    holding: Callable[[Waiting, Sequence[Seat]], QuotaHolding]
    shunned: Set[str]  # names that some job wants to be apart from
    running_of_array: Counter[JobId] = field(default_factory=Counter)
    shares: Shares = field(default_factory=Shares)
    sleeping: SleepingRoom = field(default_factory=SleepingRoom)
    tells: bool = True
    reserved: dict[JobId, Reserved] = field(default_factory=dict)
    kept: dict[JobId, list[tuple[NodeId, ReservedCapacity]]] = field(
        default_factory=dict
    )
    kept_for: dict[JobId, Waiting] = field(default_factory=dict)
    # room it has, but others are promised theirs
    beside: set[JobId] = field(default_factory=set)
    refused: dict[tuple[object, ...], Reason] = field(default_factory=dict)
    reserved_for: JobId | None = None
    placed: list[Placed] = field(default_factory=list)
    held: list[Unplaced] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    newly_reserved: list[Reserved] = field(default_factory=list)
    dropped: list[JobId] = field(default_factory=list)


def decide(
    rooms: Floor | Iterable[NodeRoom],
    waiting: Groups | Sequence[Waiting],
    *,
    fleet: NodeTypes,
    now: float = 0.0,
    running_of_array: Mapping[JobId, int] | None = None,
    standing: Standing | None = None,
    learned: Learned | None = None,
    running: Callable[[], Roster | Sequence[RunningGang]] = tuple,
    reserved: Sequence[Reserved] = (),
    ends: Callable[[], Sequence[SeatEnd]] = tuple,
    known: Sequence[Promise] = (),
    shares: Shares | None = None,
    movable: Callable[[], Movables] | None = None,
    lent: Callable[[], float] = float,
    sleeping: Iterable[LentSeat] = (),
    tells: bool = True,
) -> Decision:
    """Place whole gangs in the order of `QueueLine`, within the queues' limits. The
    fullest nodes are used first. A gang that has waited longer than
    RESERVE_AFTER_SECONDS by `now` (wall clock) reserves its best nodes.

    Args:
        rooms: Nodes that take work now; changed, unless they come from a Floor.
        fleet: All known nodes, by which "not now" is distinguished from "never".
        learned: Orders gangs by attained service (None: by age).
        standing: Holdings of queues, changed as gangs start (None: no limits).
        running: Returns possible victims; called only when a gang would have to wait.
        reserved: Capacity that earlier passes reserved for waiting gangs.
        ends: Returns the seats with a known end; called only for a promise of a start.
        known: Promises of earlier passes.
        shares: The usual GPU shares, if known.
        movable: Returns the gangs to relocate; called when only seats are missing.
        lent: GPUs that old gangs hold in their turn; called when an old gang waits.
        sleeping: Seats that sleeping replicas lend. They are free in `rooms`.
        tells: Whether to spend time on the reasons for a lack of room.
    """
    waiting = waiting if isinstance(waiting, Groups) else Groups(waiting)
    floor = rooms if isinstance(rooms, Floor) else Floor.of(rooms)
    waiting.tell_apart(shunned := floor.shunned.keys() | waiting.apart_from())
    queues = (gangs[0].queue for gangs in waiting)
    standing = standing or unlimited(fleet.capacity, queues)
    keys = PriorityKeys(standing.tree, learned)
    buying = Buying(standing, keys, now)
    opened, kinds = PassView(floor, copies=floor is rooms), sorted(floor.kinds)
    state = _new_pass(
        opened, kinds, fleet, standing, running, ends, movable, buying, shunned
    )
    state.shares = shares or state.shares
    state.sleeping = SleepingRoom.of(sleeping)
    state.tells = tells or reasons_decide(standing.tree)
    state.running_of_array.update(running_of_array or {})
    _keep_all(state, waiting, reserved)
    state.promising.load(known, waiting)
    is_kept = state.reserved.keys() | state.promising.told
    line = QueueLine(waiting.runs(is_kept), standing, keys, now, lent)
    _take_turns(state, line)
    return _decision_of(state, line)


def _decision_of(state: _Pass, line: QueueLine) -> Decision:
    return Decision(
        placed=tuple(state.placed),
        held=tuple(state.held),
        preempted=tuple(state.preempted),
        reserved=tuple(state.newly_reserved),
        dropped=tuple(state.dropped),
        promised=state.promising.promises(),
        late_jobs=frozenset(line.late_jobs),
    )


def _new_pass(
    opened: PassView,
    kinds: Sequence[str],
    fleet: NodeTypes,
    standing: Standing,
    running: Callable[[], Roster | Sequence[RunningGang]],
    ends: Callable[[], Sequence[SeatEnd]],
    movable: Callable[[], Movables] | None,
    buying: Buying,
    shunned: Set[str],
) -> _Pass:
    types = fleet.types

    def holding(gang: Waiting, seats: Sequence[Seat]) -> QuotaHolding:
        return holding_of(
            gang.queue, gang.user, seats, types, preemptible=gang.preemptible
        )

    return _Pass(
        rooms=opened.by_id,
        fleet=fleet,
        open=opened,
        promising=Promising(
            opened, standing, kinds, ends, holding, shunned, now=buying.now
        ),
        now=buying.now,
        standing=standing,
        limits=QueueLimits(standing, kinds),
        victims=Victims(running, standing, kinds, types, buying, shunned),
        relocating=Relocating(movable, standing, kinds, types, now=buying.now),
        nearness=Nearness(opened.by_id.values(), fleet, standing.tree, buying.now),
        holding=holding,
        shunned=shunned,
    )


def _take_turns(state: _Pass, line: QueueLine) -> None:
    while (gang := line.next()) is not None:
        reason = _try_gang(state, gang)
        if reason is not None:
            is_kept = gang.job in state.reserved or gang.job in state.promising.told
            alike = () if is_kept else line.close()
            state.held.append(Unplaced(gangs=(gang, *alike), reason=reason))
            if (
                reason.code in NO_ROOM
                and state.standing.tree.policy_of(gang.queue) == Policy.FIFO
            ):
                _hold_behind(state, gang, line)


def _hold_behind(state: _Pass, gang: Waiting, line: QueueLine) -> None:
    """Hold all gangs behind this one, except those with kept reservations."""
    behind = tuple(line.shut(state.reserved.keys() | state.promising.told))
    if behind:
        state.held.append(Unplaced(gangs=behind, reason=behind_older(gang)))


def _keep_all(state: _Pass, waiting: Groups, reserved: Sequence[Reserved]) -> None:
    for new_reservation in reserved:
        gang = waiting.get(new_reservation.job)
        if gang is not None:
            _keep_reservation(state, gang, new_reservation)
            state.victims.doom(new_reservation)


def _try_gang(state: _Pass, gang: Waiting) -> Reason | None:
    previous_promise = state.promising.turn_to(gang)
    array_refusal = _array_is_full(state, gang)
    if (reserved := state.reserved.get(gang.job)) is not None:
        return _try_reserved(state, gang, reserved, array_refusal)
    if array_refusal is not None:
        return array_refusal
    shapes = state.limits.shapes(gang)
    kin = gang.kin if gang.kin in state.shunned else ""
    near = () if previous_promise is not None else state.nearness.levels(gang, shapes)
    likeness = (
        shapes,
        gang.likeness,
        kin,
        state.open.view,
        gang.holds_seconds is None,
        near,
        state.sleeping.barred(gang),
    )
    can = shapes and likeness not in state.refused
    if can and _place_gang(
        state, gang, shapes, near=any(near), before=previous_promise
    ):
        return state.promising.has_passed_on(gang)
    if can and previous_promise is not None:
        places = state.promising.in_places_of_later(gang, previous_promise)
        if any(_place_gang(state, gang, shapes, near=any(near)) for _ in places):
            return None
    if any(near) and (
        reason := state.nearness.why(gang, shapes, state.open, state.promising.lets)
    ):
        return reason
    reserved = _make_way(state, gang, shapes)
    if reserved is not None:
        return gives_way(reserved.seats, reserved.victims)
    if held_back := state.sleeping.held_back(gang, shapes, state.open.with_free):
        return held_back
    promise = state.promising.promise(gang, previous_promise)
    if promise is not None and promise.start <= state.now:
        # room, since the gangs with later promises stepped aside
        state.promising.turn_to(gang)
        _take_seats(state, gang, promise.shape, promise.seats)
        return None
    if promise is not None:
        return promised(promise)
    if not shapes:
        return state.limits.reason(gang)
    return _explain(state, gang, likeness)


def _explain(state: _Pass, gang: Waiting, likeness: tuple[object, ...]) -> Reason:
    """Return why the gang finds no room. Like ones have the same reason."""
    if likeness in state.refused:
        return state.refused[likeness]
    if gang.job in state.beside:
        state.refused[likeness] = reason = state.limits.beside(gang)
        return reason
    reserved_name = "" if state.reserved_for is None else str(state.reserved_for)
    reason = UNTOLD
    if state.tells:
        idle = state.promising.idle()
        reason = explain(
            gang, state.open.with_free, state.fleet, behind=reserved_name, idle=idle
        )
    reason = state.relocating.told(gang, reason)
    state.refused[likeness] = reason
    if state.now - gang.since >= RESERVE_AFTER_SECONDS and state.reserved_for is None:
        _reserve_capacity(state, gang)
    return reason


def _array_is_full(state: _Pass, gang: Waiting) -> Reason | None:
    if gang.array is None or gang.array_limit is None:
        return None
    running = state.running_of_array[gang.array]
    coming = _count_array_promises(state, gang)
    if running + coming < gang.array_limit:
        return None
    return full_array(gang.array_limit, running, coming)


def _count_array_promises(state: _Pass, gang: Waiting) -> int:
    """Return how many other jobs of the gang's array have a promised start or reserved
    seats. These will run, so they count against the array's limit."""
    return state.promising.of_array(gang) + sum(
        kept_gang.array == gang.array
        for job, kept_gang in state.kept_for.items()
        if job != gang.job
    )


def _place_gang(
    state: _Pass,
    gang: Waiting,
    shapes: Sequence[Shape],
    *,
    near: bool = False,
    before: Promise | None = None,
) -> bool:
    """Place the gang, or an equal request with an earlier promise in its place. Return
    whether the gang was placed.

    `near` means that the gang's locality delay still lasts, and some shape is kept
    together. `before` is the gang's earlier promise.
    """
    is_weighed = state.shares.any and gang.takes_any
    for shape in shapes:
        rooms = state.open.with_free(shape.resources.gpu_millis)
        rooms = state.sleeping.open_to(gang, rooms)
        if is_weighed and shape.nodes == 1 and shape.resources.gpu_millis:
            seats = state.shares.best(rooms, gang, shape)
        else:
            bound = state.nearness.near(gang, shape) if near else gang
            seats = find_seats(rooms, bound, shape)
        if seats and state.promising.lets(gang, shape):
            if not state.sleeping.by_node:  # for which an equal one may be too slow
                gang = state.promising.pass_on(gang, before, state.held)
            _take_seats(state, gang, shape, seats)
            return True
        if seats:
            state.beside.add(gang.job)
    return False


# -- what is kept until others have given way ------------------------------------------------------


def _unpromised(state: _Pass, rooms: Sequence[NodeRoom]) -> list[NodeRoom]:
    """Return the rooms without those with a promise, and without any lent seat."""
    nodes = state.promising.nodes()
    return [room for room in state.sleeping.closed(rooms) if room.id not in nodes]


def _unreserved(state: _Pass) -> list[NodeRoom]:
    rooms = [state.rooms[room.id] for room in state.open.rooms]
    firm = state.promising.firm()
    return unreserved_rooms(rooms, state.reserved, state.kept, state.kept_for, firm)


def _make_way(state: _Pass, gang: Waiting, shapes: Sequence[Shape]) -> Reserved | None:
    """Make room for the gang by preempting or relocating other jobs, if it has a right
    to what they hold and can start then. Return its reservation, or None if there is no
    such way."""

    def rooms() -> list[NodeRoom]:
        return list(state.sleeping.open_to(gang, _unreserved(state)))

    def unpromised() -> list[NodeRoom]:
        return _unpromised(state, rooms())

    barred = state.sleeping.barred(gang)
    ground = Ground((state.standing.version, *state.open.version, barred), rooms)
    admission = state.victims.choose(gang, shapes or gang.shapes, ground)
    if admission is None:
        stopped = {preempted.job for preempted in state.preempted}
        admission = state.relocating.choose(gang, shapes, unpromised, stopped)
    if admission is None:
        return None
    state.preempted += admission.preempted
    state.newly_reserved.append(admission.reserved)
    _keep_reservation(state, gang, admission.reserved)
    for preempted in admission.preempted:
        if isinstance(preempted, Relocated):
            state.open.take(preempted.gang, preempted.to)
        elif isinstance(preempted, Shrunk):
            state.open.take_seats(preempted.to, preempted.kin, preempted.apart_from)
    return admission.reserved


def _keep_reservation(state: _Pass, gang: Waiting, reserved: Reserved) -> None:
    """Reserve these seats, and the part of the queue's own GPUs that they use, against
    all other gangs."""
    state.reserved[gang.job] = reserved
    node_capacities = []
    for seat in reserved.seats:
        if seat.node in state.rooms:
            with state.open.change(seat.node) as room:
                kept_capacity = room.keep(
                    seat, kin=gang.kin, apart_from=gang.place.apart_from
                )
            node_capacities.append((seat.node, kept_capacity))
    state.promising.keep(seat.node for seat in reserved.seats)
    state.kept[gang.job] = node_capacities
    state.kept_for[gang.job] = gang
    state.standing.take(state.holding(gang, reserved.seats))


def _let_go(state: _Pass, job: JobId) -> None:
    for node, kept_capacity in state.kept.pop(job):
        with state.open.change(node) as room:
            room.let_go(kept_capacity)
    seats = state.reserved.pop(job).seats
    state.standing.give(state.holding(state.kept_for.pop(job), seats))
    state.limits.given_back()


def _try_reserved(
    state: _Pass, gang: Waiting, reserved: Reserved, full: Reason | None
) -> Reason | None:
    """Try to start a gang with reserved seats wherever it fits now. Otherwise its seats
    stay reserved as long as they may still come free. `full` is the reason if its
    queue's limits forbid it. Return why the gang waits; None if it started."""
    if reserved.pending and full is None:
        return gives_way(reserved.seats, reserved.victims)
    _let_go(state, gang.job)
    shapes = state.limits.shapes(gang)
    if full is None and shapes and _place_gang(state, gang, shapes):
        return None
    unheard = any(seat.node not in state.rooms for seat in reserved.seats)
    if full is None and (unheard or state.victims.is_due(gang, reserved)):
        _keep_reservation(state, gang, reserved)
        return gives_way(reserved.seats, reserved.victims)
    state.dropped.append(gang.job)
    return full or Reason(
        code=ReasonCode.RESOURCES,
        sentence="the nodes kept for the job are no longer available",
    )


def _take_seats(
    state: _Pass, gang: Waiting, shape: Shape, seats: tuple[Seat, ...]
) -> None:
    state.promising.begin(gang, seats)
    state.open.take(gang, seats)
    port = state.rooms[seats[0].node].take_port()
    borrows = state.standing.take(state.holding(gang, seats))
    placed = Placed(
        job=gang.job,
        shape=shape,
        seats=seats,
        port=port or 0,
        borrowed_millis=max(0, borrows),
    )
    state.placed.append(placed)
    if gang.array is not None:
        state.running_of_array[gang.array] += 1


def _reserve_capacity(state: _Pass, gang: Waiting) -> None:
    """Reserve for the gang the first capacity that it can get.

    If the ends of other jobs are unknown, reserve the nodes that are closest to being
    free. Gangs behind this one may use the reserved nodes only until then.

    Nodes with a promised start are not available. Neither are nodes on which jobs stop,
    or are about to stop, for another gang.
    """
    if state.promising.reserve(gang):
        state.reserved_for = gang.job
        return
    awaited = {
        seat.node for reserved in state.reserved.values() for seat in reserved.seats
    }
    awaited |= state.promising.nodes()
    rooms = [room for id, room in state.rooms.items() if id not in awaited]
    node_ids = nearest_to_free(rooms, gang, deciding(gang, state.fleet), state.fleet)
    if node_ids:
        state.reserved_for = gang.job
        state.open.shut(node_ids)
