"""Future availability: current free capacity, jobs that end at their limits, and
promises.

A promise consists of seats and the latest start of a waiting gang. Until that start,
the only question is whether the promise can be kept: another gang may use what is free
for as long as it may run, after all promises are subtracted.

Source: Lifka 1995 (EASY); Mu'alem and Feitelson 2001 (conservative), here node by node.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId
from corral.domain.resources import Shape
from corral.schedule.capacity.node_room import NodeRoom
from corral.schedule.placement.gang_placement import find_seats, may_use
from corral.schedule.quota.balances import QuotaHolding, Standing
from corral.schedule.waiting import Waiting

# startup time added to a limit, which counts from when the gang is up
START_SECONDS: Final = 60.0
SAME_SECONDS: Final = 1.0  # a start that is put off by less is the same
# first extension for a job beyond its limit; each further one doubles
OVERTIME_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatEnd:
    """A running job, its seats, and the latest time at which the job ends and the seats
    become free (wall clock)."""

    job: JobId
    seats: tuple[Seat, ...]
    until: float
    holding: QuotaHolding
    kin: str = ""
    apart_from: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A promise that a waiting gang starts at `start` (wall clock) at the latest, on
    these seats.

    The gang may also start earlier, on any seats. `after` are the jobs that must end
    first. `since` is the time at which the promise was made (wall clock).
    """

    job: JobId
    shape: Shape
    seats: tuple[Seat, ...]
    start: float
    after: tuple[JobId, ...] = ()
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class _Stay:
    """The time in which a gang will use its promised seats: from the promised start
    until `stop`, which is inf if the end is unknown."""

    gang: Waiting
    promise: Promise
    stop: float
    holding: QuotaHolding

    def holds_at(self, at: float) -> bool:
        return self.promise.start <= at < self.stop


class Availability:
    """The capacity that is free at each future time, as one scheduling pass computes
    it. The rooms are those of the pass, so seats that the pass takes are also taken
    here.

    `holding` returns how much of its queue's quota a gang uses on given seats.
    """

    def __init__(
        self,
        rooms: Mapping[NodeId, NodeRoom],
        endings: Iterable[SeatEnd],
        *,
        now: float,
        standing: Standing,
        kinds: Sequence[str],
        holding: Callable[[Waiting, Sequence[Seat]], QuotaHolding],
    ) -> None:
        self.now = now
        self.version = 0  # rises with each change of what is promised
        self._shut: set[NodeId] = set()
        self._rooms = rooms
        self._standing = standing
        self._kinds = kinds
        self._holding = holding
        self._endings: list[SeatEnd] = []
        self._on: dict[NodeId, list[tuple[float, SeatEnd, Seat]]] = defaultdict(list)
        self._stays: dict[JobId, _Stay] = {}
        self._promised: dict[NodeId, list[tuple[_Stay, Seat]]] = defaultdict(list)
        for ending in endings:
            self.ends(ending)

    def ends(self, one: SeatEnd) -> None:
        """Record that these seats come free at their known end."""
        if one.until == inf:
            return
        end_time = _latest_end(one.until, self.now)
        self._endings.append(one)
        for seat in one.seats:
            self._on[seat.node].append((end_time, one, seat))

    def never_free(self, nodes: Iterable[NodeId]) -> None:
        """Remove the known ends on these nodes, whose capacity is already assigned to
        other jobs.
        """
        for node in nodes:
            self._on.pop(node, None)

    def shut(self, nodes: Iterable[NodeId]) -> None:
        """Exclude these nodes from all further promises."""
        self._shut.update(nodes)

    # -- promises --------------------------------------------------------------------------------

    @property
    def promises(self) -> list[tuple[Waiting, Promise]]:
        return [(stay.gang, stay.promise) for stay in self._stays.values()]

    def starts(self) -> list[float]:
        return sorted({stay.promise.start for stay in self._stays.values()})

    def nodes(self, *, before: float = inf) -> Iterator[NodeId]:
        """Yield the nodes on which a promised start lies before `before`."""
        for node, stays in self._promised.items():
            if node in self._rooms and any(
                stay.promise.start < before for stay, _ in stays
            ):
                yield node

    def firm(self) -> Iterator[tuple[Waiting, Promise]]:
        """Yield promises within the queue's own quota, which no gang has a right to
        take back.
        """
        for stay in self._stays.values():
            asked_millis = self._standing.asked_by(
                stay.gang, stay.promise.shape, self._kinds
            )
            if self._standing.is_own(stay.gang.queue, asked_millis):
                yield stay.gang, stay.promise

    def promise(self, gang: Waiting, promise: Promise) -> None:
        holding = self._holding(gang, promise.seats)
        stay = _Stay(
            gang, promise, _end_time(promise.start, gang.holds_seconds), holding
        )
        self._stays[gang.job] = stay
        self.version += 1
        for seat in promise.seats:
            self._promised[seat.node].append((stay, seat))

    def take_back(self, job: JobId) -> Promise | None:
        stay = self._stays.pop(job, None)
        if stay is None:
            return None
        self.version += 1
        for seat in stay.promise.seats:
            self._promised[seat.node].remove((stay, seat))
        return stay.promise

    # -- what is free when -----------------------------------------------------------------------

    def least(self, node: NodeId, start: float, stop: float) -> NodeRoom:
        """Return what stays free on the node during the whole time from `start` to
        `stop`."""
        narrowest_room = self._at(node, start)
        for promise_start in sorted(
            {stay.promise.start for stay, _ in self._promised.get(node, ())}
        ):
            if start < promise_start < stop:
                narrowest_room.narrow(self._at(node, promise_start))
        return narrowest_room

    def _at(self, node: NodeId, at: float) -> NodeRoom:
        room = self._rooms[node].copy()
        for end_time, seat_end, seat in self._on.get(node, ()):
            if self.now < end_time <= at:
                room.give(seat, kin=seat_end.kin, apart_from=seat_end.apart_from)
        for stay, seat in self._promised.get(node, ()):
            if stay.holds_at(at):
                gang = stay.gang
                room.take(seat, kin=gang.kin, apart_from=gang.place.apart_from)
        return room

    def lets(self, gang: Waiting, shape: Shape, start: float, stop: float) -> bool:
        """Return whether the gang's queue may hold this shape from `start` to `stop`,
        together with all gangs that are promised a start in that time."""
        if not self._standing.has_bounds:
            return True
        asked_millis = self._standing.asked_by(gang, shape, self._kinds)
        points = {
            start_time for start_time in self.starts() if start < start_time < stop
        } | {start}
        return all(
            self._lets_at(gang, asked_millis, start_time) for start_time in points
        )

    def _lets_at(
        self, gang: Waiting, asked: tuple[tuple[str, int], ...], at: float
    ) -> bool:
        with self._as_of(at):
            refused = self._standing.refusal(
                gang.queue, gang.user, asked, preemptible=gang.preemptible
            )
        return refused is None

    @contextmanager
    def _as_of(self, at: float) -> Iterator[None]:
        """Within the context, let queues hold what they will hold at the time `at`."""
        ended_seats = [
            ending
            for ending in self._endings
            if _latest_end(ending.until, self.now) <= at
        ]
        active_stays = [stay for stay in self._stays.values() if stay.holds_at(at)]
        for seat_end in ended_seats:
            self._standing.give(seat_end.holding)
        for stay in active_stays:
            self._standing.take(stay.holding)
        try:
            yield
        finally:
            for stay in active_stays:
                self._standing.give(stay.holding)
            for seat_end in ended_seats:
                self._standing.take(seat_end.holding)

    # -- the earliest start ----------------------------------------------------------------------

    def earliest(self, gang: Waiting) -> Promise | None:
        """Return the earliest start at which some form of the gang (an alternative in
        its request) has room for its whole run time, with all promises kept; None if no
        such time is known."""
        promis = (
            self._earliest_promise(gang, form)
            for shape in gang.shapes
            for form in self._standing.forms(shape, self._kinds)
        )
        return min(
            (promise for promise in promis if promise is not None),
            key=lambda one: one.start,
            default=None,
        )

    def again(self, gang: Waiting, before: Promise) -> Promise | None:
        """Return the earliest promise, on the nodes of the promise `before` if they
        allow the same start. So a plan that is postponed by a moment stays the same
        plan."""
        promise = self.earliest(gang)
        nodes = {seat.node for seat in before.seats}
        similar_promise = (
            self._earliest_promise(gang, before.shape, nodes)
            if promise is not None
            else None
        )
        if (
            similar_promise is None
            or promise is None
            or similar_promise.start >= promise.start + SAME_SECONDS
        ):
            return promise
        return similar_promise

    def _earliest_promise(
        self, gang: Waiting, shape: Shape, on: Set[NodeId] | None = None
    ) -> Promise | None:
        """Return the earliest promise for this shape, on the nodes `on` (None: any);
        None if there is no start."""
        changes = self._changes()
        able: dict[NodeId, NodeRoom] = {}
        steps = sorted(changes)
        covered_until = self.now
        for step_index, start_time in enumerate(steps):
            stop = _end_time(start_time, gang.holds_seconds)
            candidate_nodes = (
                changes[start_time] | self._begin_on(covered_until, stop)
                if step_index
                else self._worth_a_look(shape)
            )
            covered_until = stop
            for node in candidate_nodes:
                is_open = node in self._rooms and node not in self._shut
                if is_open and (on is None or node in on):
                    self._look(able, gang, shape, node, start_time, stop)
            if len(able) < shape.nodes:
                continue
            seats = find_seats(
                sorted(able.values(), key=self._idle_sort_key), gang, shape
            )
            if seats and self.lets(gang, shape, start_time, stop):
                blocking_jobs = self._after(seats, start_time)
                return Promise(
                    job=gang.job,
                    shape=shape,
                    seats=seats,
                    start=start_time,
                    after=blocking_jobs,
                )
        return None

    def _worth_a_look(self, shape: Shape) -> Iterable[NodeId]:
        """Yield the nodes that may have room for a seat of this shape, now or later.
        Most full nodes are skipped without a closer check."""
        resources = shape.resources
        min_whole_gpus = 0 if resources.is_share else resources.gpus
        for node, room in self._rooms.items():
            has_room = (
                room.whole >= min_whole_gpus
                and room.free_millis >= resources.gpu_millis
            )
            if has_room or node in self._on or node in self._promised:
                yield node

    def _begin_on(self, start: float, stop: float) -> set[NodeId]:
        """Return the nodes on which a promise that starts from `start` to `stop`
        reduces the free capacity."""
        stays = (
            stay for stay in self._stays.values() if start <= stay.promise.start < stop
        )
        return {seat.node for stay in stays for seat in stay.promise.seats}

    def _changes(self) -> dict[float, set[NodeId]]:
        """Return the times at which capacity comes free, with the nodes concerned. At
        some times only quota comes free, without nodes: a job that leaves reserved
        nodes still returns what its queue held."""
        changes_at: dict[float, set[NodeId]] = {self.now: set()}
        if self._standing.has_bounds:
            changes_at |= {
                _latest_end(ending.until, self.now): set() for ending in self._endings
            }
        for node, seat_ends in self._on.items():
            for end_time, _, _ in seat_ends:
                changes_at.setdefault(end_time, set()).add(node)
        for stay in self._stays.values():
            if stay.stop != inf:
                changes_at.setdefault(stay.stop, set()).update(
                    s.node for s in stay.promise.seats
                )
        return changes_at

    def _look(
        self,
        able: dict[NodeId, NodeRoom],
        gang: Waiting,
        shape: Shape,
        node: NodeId,
        at: float,
        stop: float,
    ) -> None:
        room = self._rooms[node]
        if self._on.get(node) or self._promised.get(node):
            now, room = room, self.least(node, at, stop)
            room.last = frozenset(
                i for i, free_millis in enumerate(now.free_gpu_millis) if free_millis
            )
        fits = may_use(room, gang) and room.seat(
            shape.resources, exclusive=gang.place.exclusive
        )
        if fits:
            able[node] = room
        else:
            able.pop(node, None)

    def _idle_sort_key(self, room: NodeRoom) -> tuple[object, ...]:
        """Return the sort key for nodes of a promise. Nodes that are idle now come
        last, so that they stay usable.

        Other gangs may use idle capacity until the promised start, and the rest of it
        afterwards.
        """
        return (self._rooms[room.id].whole, room.fullness)

    def _after(self, seats: Sequence[Seat], start: float) -> tuple[JobId, ...]:
        """Return the jobs for whose ends a promise on these seats waits: the jobs on
        these GPUs, else those on these nodes, else those whose end frees quota of the
        queue at that moment."""
        later_jobs = dict[JobId, bool]()
        for own_seat in seats:
            for end_time, seat_end, seat in self._on.get(own_seat.node, ()):
                if end_time <= start:
                    meets = bool(set(seat.gpus) & set(own_seat.gpus))
                    later_jobs[seat_end.job] = (
                        later_jobs.get(seat_end.job, False) or meets
                    )
        on_gpus = [job for job, meets in later_jobs.items() if meets]
        ending_jobs = [
            ending.job
            for ending in self._endings
            if _latest_end(ending.until, self.now) == start
        ]
        return tuple(sorted(on_gpus or later_jobs or ending_jobs))


def _end_time(start: float, seconds: float | None) -> float:
    return inf if seconds is None else start + seconds


def _latest_end(until: float, now: float) -> float:
    """Return when a job ends at the latest. A job that should have ended already is
    expected to end a little later than now."""
    extra_seconds = 0.0
    while until + extra_seconds <= now:
        extra_seconds = max(OVERTIME_SECONDS, 2 * extra_seconds)
    return until + extra_seconds
