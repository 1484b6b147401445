"""Victims of a preemption: gangs are stopped only if the waiting gang then starts, and
those with the least loss first.

While its queue is within its own quota, a gang takes seats from queues that borrow. It
also takes seats from preemptible jobs and, if its queue permits it, from jobs of its
queue with a lower priority. If that is not enough, it takes seats from gangs of its own
priority by service (`buying`). In queues ordered by service, the gang that is about to
get the least work done is stopped first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId, QueueName
from corral.domain.queue_policy import Policy
from corral.domain.resources import Shape
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.usage import PreemptWhy
from corral.schedule.capacity.node_room import NodeRoom
from corral.schedule.decision import Admission, Reserved, Shrunk
from corral.schedule.preemption.by_service import Buying, price_of
from corral.schedule.preemption.candidates import Roster
from corral.schedule.preemption.node_parts import (
    candidate_sets,
    given_part,
    preempted_of,
)
from corral.schedule.preemption.rights import Gpus, PreemptionRights
from corral.schedule.preemption.service_candidates import Sales
from corral.schedule.preemption.victim_search import (
    Cost,
    Search,
    VictimCandidate,
    on_nodes,
)
from corral.schedule.quota.balances import Standing
from corral.schedule.running import RunningGang
from corral.schedule.waiting import Waiting

Rooms = Callable[[], Sequence[NodeRoom]]
Right = Callable[[Waiting, Gpus, RunningGang], PreemptWhy | None]


class Ground(NamedTuple):
    """The cluster's state in which a gang is admitted.

    `rooms` returns the free capacity, without what is reserved for others and without
    what stopping gangs still hold; the rooms are not changed. `version`: while it is
    unchanged, all holdings and reservations are unchanged too.
    """

    version: tuple[int, ...]
    rooms: Rooms


class _Told(NamedTuple):
    """All running gangs as read in this pass, and how much each of their queues
    borrowed at that time."""

    roster: Roster
    over_millis: Mapping[QueueName, int]


MOST_A_PASS: Final = 8  # gangs admitted by one pass, since each search takes time
_SETTLED: Final = (
    True,
    False,
)  # first only those past their minimum run time, then all


class Victims:
    """Chooses the running jobs to preempt in one scheduling pass. A job is chosen at
    most once."""

    def __init__(
        self,
        running: Callable[[], Roster | Sequence[RunningGang]],
        standing: Standing,
        kinds: Sequence[str],
        types: Mapping[NodeId, Sequence[str]],
        buying: Buying | None = None,
        shunned: Set[str] = frozenset(),
    ) -> None:
        self._ask = running
        self._standing = standing
        self._kinds = kinds
        self._types = types
        self._buying = buying
        self._offers = 0
        self._shunned = shunned
        self._rights = PreemptionRights(standing)
        self._told: _Told | None = None
        self._sales: Sales | None = None
        self._running: Sequence[RunningGang] = ()  # the gangs of these sales
        self._candidates: dict[JobId, VictimCandidate] = {}
        self._by_work: dict[JobId, VictimCandidate] = {}
        self._doomed: set[JobId] = set()
        self._staying: dict[JobId, tuple[Seat, ...]] = {}
        self._left: list[VictimCandidate] | None = None
        self._leaving_nodes: set[NodeId] | None = None
        self._without: tuple[tuple[int, ...], dict[NodeId, NodeRoom]] | None = None
        self._failed: set[tuple[object, ...]] = set()
        self._ever: dict[tuple[QueueName, int], bool] = {}
        self._in_vain: set[tuple[object, ...]] = set()
        self._prices: dict[tuple[object, ...], tuple[Shape, float]] = {}
        self._found = 0

    def doom(self, reserved: Reserved) -> None:
        """Mark the victims of this reservation as already stopping. Those that give
        only some of their nodes go on with the others."""
        self._doomed.update(reserved.victims)
        self._staying.update(reserved.staying)
        self._left = self._leaving_nodes = self._without = None

    def choose(
        self, gang: Waiting, shapes: Sequence[Shape], ground: Ground
    ) -> Admission | None:
        """Return the victims to stop and the seats that the gang gets, in one of these
        shapes; None if it cannot start by preemption."""
        if gang.preemptible or not self._all().roster or self._found >= MOST_A_PASS:
            return None
        alike = (gang.queue, gang.user, gang.priority, gang.likeness)
        admission = None
        if alike not in self._failed:
            admission = (
                self._by_right(gang, shapes, ground)
                if self._can_have_victims(gang)
                else None
            )
            if admission is None:
                self._failed.add(alike)
        admission = admission or self._buy_places(gang, shapes, ground)
        if admission is not None:
            self._found += 1
            self.doom(admission.reserved)
        return admission

    def _can_have_victims(self, gang: Waiting) -> bool:
        """Return whether a search for victims can succeed: a running gang is about to
        end, or is one that a gang of this queue and priority could ever have a right to
        stop."""
        key, roster = (gang.queue, gang.priority), self._all().roster
        if key not in self._ever:
            sample_gangs = map(roster.first, roster.groups)
            self._ever[key] = any(
                self._rights.could_ever(gang, running_gang)
                for running_gang in sample_gangs
            )
        return self._ever[key] or bool(self._leaving())

    def _search_key(self, gang: Waiting, ground: Ground) -> tuple[object, ...]:
        """Return the key for caching a search: gangs with the same key have the same
        result."""
        kin = gang.kin if gang.kin in self._shunned else ""
        return (
            ground.version,
            gang.queue,
            gang.user,
            gang.priority,
            gang.needs,
            gang.whole_gpus,
            kin,
        )

    def _by_right(
        self, gang: Waiting, shapes: Sequence[Shape], ground: Ground
    ) -> Admission | None:
        like = self._search_key(gang, ground)
        if like in self._in_vain:
            return None
        leaving, admission = self._leaving(), None
        with self._given(leaving):
            able = self._with_a_right(gang, shapes)
            if able or leaving:
                if self._orders_by_service(gang, able):
                    able = [
                        self._weigh_by_work(victim_candidate)
                        for victim_candidate in able
                    ]
                admission = self._first(
                    gang,
                    shapes,
                    able,
                    leaving,
                    ground,
                    self._rights.right,
                    in_parts=True,
                )
        if admission is None:
            self._in_vain.add(like)
        return admission

    def _orders_by_service(
        self, gang: Waiting, able: Sequence[VictimCandidate]
    ) -> bool:
        """Return whether the gang and all candidates share one order by service."""
        tree = self._standing.tree
        if self._buying is None or tree.policy_of(gang.queue) != Policy.ATTAINED:
            return False
        sellers = self._buying.sellers(gang.queue)
        return all(
            victim_candidate.running.queue in sellers for victim_candidate in able
        )

    def _weigh_by_work(self, one: VictimCandidate) -> VictimCandidate:
        """Return the candidate with the lost work in its cost replaced by
        `Buying.delay`, the cost of stopping a gang in a queue ordered by service."""
        assert self._buying is not None
        job = one.running.job
        if job not in self._by_work:
            work = self._buying.delay(one.running)
            self._by_work[job] = replace(one, cost=one.cost._replace(work=work))
        return self._by_work[job]

    def _buy_places(
        self, gang: Waiting, shapes: Sequence[Shape], ground: Ground
    ) -> Admission | None:
        """Return the victims and seats that the gang gets by service: its key is better
        than theirs, and it has waited long enough; else None."""
        buying = self._buying
        if buying is None or self._offers >= MOST_A_PASS or not buying.may_buy(gang):
            return None
        offered = self._for_sale(buying).to(gang, ground.version, self._stays)
        price = offered.cheapest
        if price is None or not buying.has_paid(gang, shapes[0], price):
            return None
        self._offers += 1
        # the more, the better its key
        like = (*self._search_key(gang, ground), len(offered.at))
        if like in self._in_vain:
            return None
        if like in self._prices and not buying.has_paid(gang, *self._prices[like]):
            return None
        able = [
            self._weigh_by_work(self._candidate(self._running[running_index]))
            for running_index in sorted(offered.at)
        ]

        def right(gang: Waiting, _: Gpus, one: RunningGang) -> PreemptWhy | None:
            return PreemptWhy.SERVICE if buying.may_take(gang, one) else None

        leaving = self._leaving()
        with self._given(leaving):
            admission = self._first(gang, shapes, able, leaving, ground, right)
        if admission is None or not admission.preempted:
            self._in_vain.add(like)
            return None
        victims = [
            victim_candidate.running
            for victim_candidate in able
            if victim_candidate.running.job in admission.reserved.victims
        ]
        self._prices[like] = (admission.reserved.shape, price_of(victims))
        return admission if buying.has_paid(gang, *self._prices[like]) else None

    def _for_sale(self, buying: Buying) -> Sales:
        if self._sales is None:
            roster = self._all().roster
            self._running = roster.in_order(roster.groups)
            self._sales = Sales(buying, self._running)
        return self._sales

    def is_due(self, gang: Waiting, reserved: Reserved) -> bool:
        """Return whether the gang can start once all victims and stopping jobs have
        ended.

        That is so if one of them is on a node of the gang's seats, and the gang's queue
        then permits the gang.
        """
        if not any(seat.node in self._nodes_of_leaving() for seat in reserved.seats):
            return False
        asked_millis = self._standing.asked_by(gang, reserved.shape, self._kinds)
        if self._standing.refusal(gang.queue, gang.user, asked_millis) is None:
            return True
        with self._given(self._leaving()):
            return self._standing.refusal(gang.queue, gang.user, asked_millis) is None

    def _nodes_of_leaving(self) -> set[NodeId]:
        if self._leaving_nodes is None:
            leaving = self._leaving()
            self._leaving_nodes = {
                seat.node
                for victim_candidate in leaving
                for seat in victim_candidate.seats
            }
        return self._leaving_nodes

    def _all(self) -> _Told:
        if self._told is None:
            running_gangs = self._ask()
            roster = (
                running_gangs
                if isinstance(running_gangs, Roster)
                else Roster.of(running_gangs)
            )
            sample_gangs = [
                *map(roster.first, roster.groups),
                *roster.some(roster.leaving),
            ]
            queues = {running_gang.queue for running_gang in sample_gangs}
            borrowed_by_queue = {
                queue: self._standing.borrowed_millis(queue) for queue in queues
            }
            self._told = _Told(roster, borrowed_by_queue)
        return self._told

    def _leaving(self) -> list[VictimCandidate]:
        """Return the gangs that were already asked to stop or are about to end."""
        if self._left is None:
            roster = self._all().roster
            jobs = dict.fromkeys((*roster.leaving, *sorted(self._doomed)))
            leaving = [
                self._candidate(running_gang) for running_gang in roster.some(jobs)
            ]
            self._left = [
                given_part(candidate, self._staying[job], self._types)
                if (job := candidate.running.job) in self._staying
                and not candidate.running.stopping
                else candidate
                for candidate in leaving
            ]
        return self._left

    def _candidate(self, one: RunningGang) -> VictimCandidate:
        if one.job not in self._candidates:
            borrowed_gpus = self._all().over_millis[one.queue] / MILLIS_PER_GPU
            work = one.cost_gpu_seconds
            cost = Cost(
                int(not one.preemptible),
                work,
                one.priority,
                -borrowed_gpus,
                -one.started,
            )
            self._candidates[one.job] = VictimCandidate.of(one, self._types, cost)
        return self._candidates[one.job]

    def _is_leaving(self, one: RunningGang) -> bool:
        return one.stopping or one.job in self._doomed

    def _stays(self, one: RunningGang) -> bool:
        return not self._is_leaving(one)

    @contextmanager
    def _given(self, leaving: Sequence[VictimCandidate]) -> Iterator[None]:
        """Within the context, count what these gangs hold as given back."""
        with self._standing.pretending():
            for victim_candidate in leaving:
                self._standing.give(victim_candidate.holding)
            try:
                yield
            finally:
                for victim_candidate in leaving:
                    self._standing.take(victim_candidate.holding)

    def _with_a_right(
        self, gang: Waiting, shapes: Sequence[Shape]
    ) -> list[VictimCandidate]:
        """Return the running gangs that are not stopping and that the gang may stop now
        by a right, for at least one of these shapes."""
        gpu_requests = [
            self._standing.asked_by(gang, shape, self._kinds) for shape in shapes
        ]
        roster, preempt_right = self._all().roster, self._rights.right
        groups = [
            group
            for group in roster.groups
            if any(
                preempt_right(gang, ask, roster.first(group)) for ask in gpu_requests
            )
        ]
        ordered_gangs = roster.in_order(groups)
        return [
            self._candidate(running_gang)
            for running_gang in ordered_gangs
            if not self._is_leaving(running_gang)
        ]

    def _first(
        self,
        gang: Waiting,
        shapes: Sequence[Shape],
        able: list[VictimCandidate],
        leaving: list[VictimCandidate],
        ground: Ground,
        right: Right,
        *,
        in_parts: bool = False,
    ) -> Admission | None:
        pretended = self._rooms_without(leaving, ground)
        for settled in _SETTLED:
            eligible_victims = [
                victim_candidate
                for victim_candidate in able
                if victim_candidate.running.min_runtime_over or not settled
            ]
            if settled and len(eligible_victims) in (0, len(able)):
                continue  # the second round is the same
            sets = list(
                candidate_sets(eligible_victims, self._types, in_parts=in_parts)
            )
            for shape, candidates in product(shapes, sets):
                admission = self._way(gang, shape, candidates, pretended, right)
                if admission is not None:
                    return admission
        return None

    def _rooms_without(
        self, leaving: Sequence[VictimCandidate], ground: Ground
    ) -> dict[NodeId, NodeRoom]:
        """Return the rooms as they will be once these gangs have ended."""
        if self._without is None or self._without[0] != ground.version:
            pretended = {room.id: room for room in ground.rooms()}
            for node in {
                seat.node for candidate in leaving for seat in candidate.seats
            }:
                if node in pretended:
                    pretended[node] = pretended[node].copy()
            for victim_candidate in leaving:
                _free_victim_seats(pretended, victim_candidate)
            self._without = (ground.version, pretended)
        return self._without[1]

    def _way(
        self,
        gang: Waiting,
        shape: Shape,
        able: list[VictimCandidate],
        rooms: dict[NodeId, NodeRoom],
        right: Right,
    ) -> Admission | None:
        asked_millis = self._standing.asked_by(gang, shape, self._kinds)
        search = Search(
            standing=self._standing,
            gang=gang,
            shape=shape,
            asked=asked_millis,
            by_node=on_nodes(able),
            right=lambda one: right(gang, asked_millis, one.running),
        )
        found_way = search.run(list(rooms.values()))
        if found_way is None or not (
            found_way.victims or self._standing.is_own(gang.queue, asked_millis)
        ):
            return None
        preempted = preempted_of(gang, found_way.victims)
        return Admission(
            reserved=Reserved(
                job=gang.job,
                shape=shape,
                seats=found_way.seats,
                victims=tuple(victim.job for victim in preempted),
                staying=tuple(
                    (victim.job, victim.to)
                    for victim in preempted
                    if isinstance(victim, Shrunk)
                ),
            ),
            preempted=preempted,
        )


def _free_victim_seats(rooms: Mapping[NodeId, NodeRoom], one: VictimCandidate) -> None:
    for seat in one.seats:
        if seat.node in rooms:
            running = one.running
            rooms[seat.node].give(seat, kin=running.kin, apart_from=running.apart_from)
