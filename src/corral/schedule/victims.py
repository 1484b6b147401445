"""Who is stopped so that a waiting gang can start: only if it then starts, and least lost first.

A gang takes from those who borrow while it is within its own, from those who may be preempted by
anybody, and, where its queue lets it, from those of its queue with a lower priority; after all
that, from those of its own priority by service (`buying`). Where service orders, whoever is about
to get least done goes first.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId, QueueName
from corral.domain.queue import Policy, Preempt
from corral.domain.resources import Shape
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.use import PreemptWhy
from corral.schedule.buying import Buying
from corral.schedule.limits import holding_of
from corral.schedule.room import NodeRoom
from corral.schedule.running import Running
from corral.schedule.search import Candidate, Cost, Search
from corral.schedule.standing import Standing
from corral.schedule.waiting import Waiting

Gpus = tuple[tuple[str, int], ...]
Rooms = Callable[[], Sequence[NodeRoom]]
Right = Callable[[Waiting, Gpus, Candidate], PreemptWhy | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """A running job that has to give way to a waiting one, and what that is expected to cost."""

    job: JobId
    by: JobId
    why: PreemptWhy
    lost_gpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """Seats that are kept for a waiting gang until it starts, and those who are stopped for it.

    `pending`: somebody was told to stop and still holds a part of the seats: it waits for just
    these, so that nobody has given way in vain.
    """

    job: JobId
    shape: Shape
    seats: tuple[Seat, ...]
    victims: tuple[JobId, ...] = ()
    pending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a gang can be let in."""

    reserved: Reserved
    preempted: tuple[Preempted, ...]


class _Told(NamedTuple):
    """All that run; the places of those that are alike as to who has a right to stop them; and what
    each queue borrows when it is asked."""

    running: Sequence[Running]
    alike: Mapping[tuple[object, ...], Sequence[int]]
    over_millis: Mapping[QueueName, int]


MOST_A_PASS: Final = 8  # so many gangs are let in by one pass, since each search takes its time
_SETTLED: Final = (True, False)  # first only those past their guard, then all


class Victims:
    """The choice of one pass. Who was chosen once is not chosen again."""

    def __init__(
        self,
        running: Callable[[], Sequence[Running]],
        standing: Standing,
        kinds: Sequence[str],
        types: Mapping[NodeId, Sequence[str]],
        buying: Buying | None = None,
    ) -> None:
        self._ask = running
        self._standing = standing
        self._kinds = kinds
        self._types = types
        self._buying = buying
        self._offers = 0
        self._paths: dict[QueueName, tuple[QueueName, ...]] = {}
        self._told: _Told | None = None
        self._candidates: dict[JobId, Candidate] = {}
        self._doomed: set[JobId] = set()
        self._left: list[Candidate] | None = None
        self._leaving_nodes: set[NodeId] | None = None
        self._rights: dict[tuple[object, ...], bool] = {}
        self._rights_version = -1
        self._failed: set[tuple[object, ...]] = set()
        self._found = 0

    def doom(self, victims: Sequence[JobId]) -> None:
        """These give way already."""
        self._doomed.update(victims)
        self._left = self._leaving_nodes = None

    def choose(self, gang: Waiting, shapes: Sequence[Shape], rooms: Rooms) -> Way | None:
        """Who gives way to the gang so that it has one of these shapes; None: nobody is enough.

        `rooms`: with what is kept for others taken, and what others still hold of it not given
        back. They are not changed.
        """
        alike = (gang.queue, gang.user, gang.priority, gang.likeness)
        if gang.preemptible or not self._all().running or self._found >= MOST_A_PASS:
            return None
        way = None
        if alike not in self._failed:
            way = self._by_right(gang, shapes, rooms)
            if way is None:
                self._failed.add(alike)
        way = way or self._bought(gang, shapes, rooms)
        if way is not None:
            self._found += 1
            self.doom(way.reserved.victims)
        return way

    def _by_right(self, gang: Waiting, shapes: Sequence[Shape], rooms: Rooms) -> Way | None:
        leaving = self._leaving()
        with self._given(leaving):
            able = self._with_a_right(gang, shapes)
            if not able and not leaving:
                return None
            if self._orders_by_service(gang, able):
                able = self._weighed(able)
            return self._first(gang, shapes, able, leaving, rooms, self.right)

    def _orders_by_service(self, gang: Waiting, able: Sequence[Candidate]) -> bool:
        """Whether the gang and all of these go by service together."""
        tree = self._standing.tree
        if self._buying is None or tree.policy_of(gang.queue) != Policy.SERVICE:
            return False
        sellers = self._buying.sellers(gang.queue)
        return all(one.running.queue in sellers for one in able)

    def _weighed(self, able: Sequence[Candidate]) -> list[Candidate]:
        """The same by what they are about to get done."""
        assert self._buying is not None
        delay = self._buying.delay
        costs = [(one, one.cost._replace(work=delay(one.running))) for one in able]
        return [replace(one, cost=cost) for one, cost in costs]

    def _bought(self, gang: Waiting, shapes: Sequence[Shape], rooms: Rooms) -> Way | None:
        """Places of others in its queue that its key is better than, if it has paid for them."""
        buying = self._buying
        if buying is None or self._offers >= MOST_A_PASS or not buying.may_buy(gang):
            return None
        able = self._outranked(gang, buying)
        cheapest = min(able, key=lambda one: one.running.price_gpu_seconds, default=None)
        if cheapest is None or not buying.has_paid(gang, shapes[0], [cheapest.running]):
            return None
        self._offers += 1

        def right(gang: Waiting, _: Gpus, one: Candidate) -> PreemptWhy | None:
            return PreemptWhy.SERVICE if buying.may_take(gang, one.running) else None

        leaving = self._leaving()
        with self._given(leaving):
            way = self._first(gang, shapes, able, leaving, rooms, right)
        if way is None or not way.preempted:
            return None
        victims = [one.running for one in able if one.running.job in way.reserved.victims]
        return way if buying.has_paid(gang, way.reserved.shape, victims) else None

    def _outranked(self, gang: Waiting, buying: Buying) -> list[Candidate]:
        told = self._all()
        likes = [
            (queue, gang.priority, can_save, False)
            for queue in buying.sellers(gang.queue)
            for can_save in (True, False)
        ]
        places = [place for like in likes for place in told.alike.get(like, ())]
        some = (told.running[place] for place in sorted(places))
        able = (one for one in some if not self._leaves(one) and buying.may_take(gang, one))
        return self._weighed([self._candidate(one) for one in able])

    def is_due(self, gang: Waiting, reserved: Reserved) -> bool:
        """Whether the gang will start when all who give way or are stopping have gone: some of them
        still hold a part of its seats, and its queue will let it."""
        if not any(seat.node in self._nodes_of_leaving() for seat in reserved.seats):
            return False
        asked = self._standing.asked_by(gang, reserved.shape, self._kinds)
        if self._standing.refusal(gang.queue, gang.user, asked) is None:
            return True
        with self._given(self._leaving()):
            return self._standing.refusal(gang.queue, gang.user, asked) is None

    def _nodes_of_leaving(self) -> set[NodeId]:
        if self._leaving_nodes is None:
            leaving = self._leaving()
            self._leaving_nodes = {seat.node for one in leaving for seat in one.running.seats}
        return self._leaving_nodes

    def _all(self) -> _Told:
        if self._told is None:
            running = self._ask()
            alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
            for place, one in enumerate(running):
                alike[one.queue, one.priority, one.can_save, one.preemptible].append(place)
            over = {
                queue: self._standing.borrowed_millis(queue)
                for queue in {one.queue for one in running}
            }
            self._told = _Told(running, alike, over)
        return self._told

    def _leaving(self) -> list[Candidate]:
        """Those that give way already, or come to their end."""
        if self._left is None:
            running = self._all().running
            self._left = [self._candidate(one) for one in running if self._leaves(one)]
        return self._left

    def _candidate(self, one: Running) -> Candidate:
        if one.job not in self._candidates:
            over = self._all().over_millis[one.queue] / MILLIS_PER_GPU
            work = one.cost_gpu_seconds
            self._candidates[one.job] = Candidate(
                running=one,
                holding=holding_of(
                    one.queue, one.user, one.seats, self._types, preemptible=one.preemptible
                ),
                cost=Cost(int(not one.preemptible), work, one.priority, -over, -one.started),
            )
        return self._candidates[one.job]

    def _leaves(self, one: Running) -> bool:
        return one.stopping or one.job in self._doomed

    @contextmanager
    def _given(self, leaving: Sequence[Candidate]) -> Iterator[None]:
        """Pretend that these have gone."""
        for one in leaving:
            self._standing.give(one.holding)
        try:
            yield
        finally:
            for one in leaving:
                self._standing.take(one.holding)

    def _with_a_right(self, gang: Waiting, shapes: Sequence[Shape]) -> list[Candidate]:
        """Those that at least one of the shapes may take from as things are, of all that stay."""
        asks = [self._standing.asked_by(gang, shape, self._kinds) for shape in shapes]
        running, places = self._all().running, list[int]()
        for alike in self._all().alike.values():
            first = running[alike[0]]
            if any(self._right(gang, asked, first) for asked in asks):
                places += alike
        some = (running[place] for place in sorted(places))
        return [self._candidate(one) for one in some if not self._leaves(one)]

    def _first(
        self,
        gang: Waiting,
        shapes: Sequence[Shape],
        able: list[Candidate],
        leaving: list[Candidate],
        rooms: Rooms,
        right: Right,
    ) -> Way | None:
        pretended = {room.id: room for room in rooms()}
        for node in {seat.node for one in leaving for seat in one.running.seats}:
            if node in pretended:
                pretended[node] = pretended[node].copy()
        for one in leaving:
            _leave(pretended, one)
        for settled in _SETTLED:
            some = [one for one in able if one.running.guard_over or not settled]
            if settled and len(some) in (0, len(able)):
                continue  # the second round is the same
            for shape in shapes:
                way = self._way(gang, shape, some, pretended, right)
                if way is not None:
                    return way
        return None

    def _way(
        self,
        gang: Waiting,
        shape: Shape,
        able: list[Candidate],
        rooms: dict[NodeId, NodeRoom],
        right: Right,
    ) -> Way | None:
        asked = self._standing.asked_by(gang, shape, self._kinds)
        by_node: dict[NodeId, list[Candidate]] = defaultdict(list)
        for one in sorted(able, key=lambda one: one.cost):
            for seat in one.running.seats:
                by_node[seat.node].append(one)
        search = Search(
            standing=self._standing,
            gang=gang,
            shape=shape,
            asked=asked,
            by_node=by_node,
            right=lambda one: right(gang, asked, one),
        )
        found = search.run(list(rooms.values()))
        if found is None or not (found.victims or self._standing.is_own(gang.queue, asked)):
            return None
        victims = tuple(one.running.job for one, _ in found.victims)
        return Way(
            reserved=Reserved(job=gang.job, shape=shape, seats=found.seats, victims=victims),
            preempted=tuple(
                Preempted(
                    job=one.running.job,
                    by=gang.job,
                    why=why,
                    lost_gpu_seconds=one.running.lost_gpu_seconds,
                )
                for one, why in found.victims
            ),
        )

    # -- by what right ---------------------------------------------------------------------------

    def right(self, gang: Waiting, asked: Gpus, one: Candidate) -> PreemptWhy | None:
        """By what right the gang may take from this one as things stand; None: by none."""
        return self._right(gang, asked, one.running)

    def _right(self, gang: Waiting, asked: Gpus, victim: Running) -> PreemptWhy | None:
        """The same for all that are alike, as in `_Told`."""
        if victim.preemptible:
            return PreemptWhy.PREEMPTIBLE
        if victim.queue == gang.queue:
            rule = self._standing.tree.queue(gang.queue).preempt
            loses_little = rule == Preempt.SAVING and victim.can_save
            lower = victim.priority < gang.priority
            may = lower and (rule == Preempt.ANY or loses_little)
            return PreemptWhy.PRIORITY if may else None
        return PreemptWhy.RECLAIM if self._reclaims(gang, asked, victim.queue) else None

    def _reclaims(self, gang: Waiting, asked: Gpus, queue: QueueName) -> bool:
        """As `_borrows`, found once for as long as nothing is taken or given."""
        return self._once("borrows", gang, asked, queue, self._borrows)

    def _is_within(self, gang: Waiting, asked: Gpus, level: QueueName) -> bool:
        """As the standing tells, in the same way."""
        return self._once("within", gang, asked, level, self._tells)

    def _tells(self, gang: Waiting, asked: Gpus, level: QueueName) -> bool:
        return self._standing.is_within(gang.queue, asked, level)

    def _once(
        self,
        what: str,
        gang: Waiting,
        asked: Gpus,
        queue: QueueName,
        find: Callable[[Waiting, Gpus, QueueName], bool],
    ) -> bool:
        if self._rights_version != self._standing.version:
            self._rights, self._rights_version = {}, self._standing.version
        key = (what, gang.queue, asked, queue)
        if key not in self._rights:
            self._rights[key] = find(gang, asked, queue)
        return self._rights[key]

    def _borrows(self, gang: Waiting, asked: Gpus, queue: QueueName) -> bool:
        """Whether what the queue holds is the gang's to take back: where their ways up the tree
        part, the gang's side is within its own, and the other one is beyond it."""
        standing, mine, theirs = self._standing, self._path(gang.queue), self._path(queue)
        parts = 0
        while parts < min(len(mine), len(theirs)) and mine[parts] == theirs[parts]:
            parts += 1
        if parts == len(mine) or not any(millis for _, millis in asked):
            return False
        if not self._is_within(gang, asked, mine[parts]):
            return False
        if parts == len(theirs):  # it runs in a queue above the gang's, on what that has to share
            return not standing.is_within(gang.queue, asked, theirs[-1])
        return standing.over_millis(theirs[parts]) > 0

    def _path(self, queue: QueueName) -> tuple[QueueName, ...]:
        if queue not in self._paths:
            self._paths[queue] = tuple(one.name for one in self._standing.tree.path(queue))
        return self._paths[queue]


def _leave(rooms: Mapping[NodeId, NodeRoom], one: Candidate) -> None:
    for seat in one.running.seats:
        if seat.node in rooms:
            running = one.running
            rooms[seat.node].give(seat, kin=running.kin, apart_from=running.apart_from)
