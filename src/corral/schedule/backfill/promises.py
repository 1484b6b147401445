"""Promised starts by the policies of queues, and the capacity left for other jobs."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from math import inf
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId, QueueName
from corral.domain.queue import Queue
from corral.domain.queue_policy import Policy
from corral.domain.reason_code import ReasonCode
from corral.domain.resources import Shape
from corral.domain.time_point import moment_text
from corral.schedule.backfill.promise_swap import told_after, told_before
from corral.schedule.decision import Unplaced
from corral.schedule.explain import Idle
from corral.schedule.job_groups import Groups
from corral.schedule.placement.availability import (
    SAME_SECONDS,
    Availability,
    Promise,
    SeatEnd,
)
from corral.schedule.placement.pass_view import PassView
from corral.schedule.quota.balances import QuotaHolding, Standing
from corral.schedule.waiting import Reason, Waiting

# of one conservative queue: at most N gangs get a promise in a pass, in order
MOST_PROMISED: Final = 8
_MOST: Final = {Policy.BACKFILL: 1, Policy.CONSERVATIVE: MOST_PROMISED}


class Promising:
    """Promised starts of waiting gangs during one scheduling pass.

    Future capacity is computed only if a gang already has a promise, or is about to get
    one. `ask` returns the seats of running jobs whose end is known.
    """

    def __init__(
        self,
        opened: PassView,
        standing: Standing,
        kinds: Sequence[str],
        ask: Callable[[], Sequence[SeatEnd]],
        holding: Callable[[Waiting, Sequence[Seat]], QuotaHolding],
        shunned: Set[str],
        *,
        now: float,
    ) -> None:
        self._opened = opened
        self._standing = standing
        self._kinds = kinds
        self._ask = ask
        self._holding = holding
        self._now = now
        self._shunned = shunned
        self._told: set[JobId] = set()
        self._moments = 0
        self._starts: list[float] = []  # as promised before
        self._in_vain: Counter[QueueName] = Counter()
        self._begun: list[SeatEnd] = []
        self._never_free: set[NodeId] = set()

    def load(self, known: Sequence[Promise], waiting: Groups) -> None:
        """Load promises of earlier passes to jobs that still wait."""
        self._starts = sorted(promise.start for promise in known)
        for promise in sorted(known, key=lambda one: (one.since, one.job)):
            gang = waiting.get(promise.job)
            if gang is not None:
                self._look().promise(gang, promise)
                self._told.add(promise.job)

    @property
    def told(self) -> frozenset[JobId]:
        """Return the jobs that have a promise."""
        return frozenset(self._told)

    def promises(self) -> tuple[Promise, ...]:
        """Return all valid promises of jobs that were notified."""
        ahead = self._opened.ahead
        promise_pairs = ahead.promises if ahead is not None else []
        return tuple(
            promise for _, promise in promise_pairs if promise.job in self._told
        )

    # -- updates from the pass

    def begin(self, gang: Waiting, seats: tuple[Seat, ...]) -> None:
        """Record that the gang has been placed on these seats, so that later promises
        can count on the seats being free at the gang's time limit."""
        if gang.holds_seconds is None:
            return
        ending = SeatEnd(
            job=gang.job,
            seats=seats,
            until=self._now + gang.holds_seconds,
            holding=self._holding(gang, seats),
            kin=gang.kin,
            apart_from=gang.place.apart_from,
        )
        self._begun.append(ending)
        if self._opened.ahead is not None:
            self._opened.ahead.ends(ending)

    def keep(self, nodes: Iterable[NodeId]) -> None:
        """Reserve all capacity that becomes free on these nodes, so that it is not
        promised to other gangs."""
        self._never_free.update(nodes)
        if self._opened.ahead is not None:
            self._opened.ahead.never_free(self._never_free)

    # -- queries of the pass

    def turn_to(self, gang: Waiting) -> Promise | None:
        """Limit the visible capacity to what this gang may use without breaking the
        promises to other gangs.

        The gang's own promise is withdrawn. Return that promise, or None if it has
        none.
        """
        ahead = self._opened.ahead
        if ahead is None:
            return None
        promise = ahead.take_back(gang.job)
        self._told.discard(gang.job)
        self._opened.see(self._stop(gang))
        return promise

    def lets(self, gang: Waiting, shape: Shape) -> bool:
        """Return whether the limits of the gang's queue allow it to run in this shape
        now, counting also all starts that are promised before it ends."""
        ahead = self._opened.ahead
        return ahead is None or ahead.lets(gang, shape, self._now, self._stop(gang))

    def nodes(self) -> set[NodeId]:
        """Return the nodes with a promise."""
        ahead = self._opened.ahead
        return set(ahead.nodes()) if ahead is not None else set()

    def of_array(self, gang: Waiting) -> int:
        """Return how many other gangs of the same array have a promised start."""
        ahead = self._opened.ahead
        promises = ahead.promises if ahead is not None else []
        return sum(
            waiting_gang.array == gang.array
            and waiting_gang.job in self._told - {gang.job}
            for waiting_gang, _ in promises
        )

    def idle(self) -> list[Idle]:
        """Return the GPUs that are reserved for promised starts and idle until then."""
        ahead = self._opened.ahead
        idle_rooms = []
        for gang, promise in ahead.promises if ahead is not None else ():
            millis = sum(self._free_millis(seat) for seat in promise.seats)
            if millis:
                idle_rooms.append(
                    Idle(job=gang.job, gpu_millis=millis, start=promise.start)
                )
        return sorted(idle_rooms, key=lambda one: one.start)

    def _free_millis(self, seat: Seat) -> int:
        room = self._opened.by_id.get(seat.node)
        free_gpu_millis = room.free_gpu_millis if room is not None else []
        return sum(
            free_gpu_millis[index]
            for index in seat.gpus
            if index < len(free_gpu_millis)
        )

    def firm(self) -> Iterable[tuple[Waiting, Promise]]:
        """Return the promises within a queue's own quota, which no other gang may take
        back."""
        ahead = self._opened.ahead
        return ahead.firm() if ahead is not None else ()

    def promise(self, gang: Waiting, before: Promise | None) -> Promise | None:
        """Return a promised start for a gang that has no room now; None if the policy
        of its queue promises none.

        `before` is the promise that the gang had until now, if any.
        """
        queue = self._policy_queue(gang)
        promise_limit = _MOST.get(queue.policy, 0)
        if not promise_limit:
            return None
        if (
            before is None
            and self._in_vain[queue.name] + self._count(queue.name) >= promise_limit
        ):
            return None
        promise = self._earliest_promise(gang)
        if before is not None and (promise is None or promise.start > before.start):
            return self._put_off(gang, before)
        if promise is None:
            self._in_vain[queue.name] += 1
            return None
        promised_since = self._next_moment() if before is None else before.since
        return self._tell_in_order(
            gang, promise, promised_since, inf if before is None else before.start
        )

    def _tell_in_order(
        self, gang: Waiting, promised: Promise, since: float, latest: float
    ) -> Promise:
        """Give the new start to the first equal request with an earlier promise, whose
        old start goes to the next one, and so on. Return the promise that remains for
        the gang."""
        for other_gang, promise in self._told_before(
            gang, since, promised.start, latest
        ):
            self._look().take_back(other_gang.job)
            self._record_promise(
                other_gang, replace(promised, job=other_gang.job), promise.since
            )
            promised = replace(promise, job=gang.job)
        self._record_promise(gang, promised, since)
        return promised

    def pass_on(
        self, gang: Waiting, before: Promise | None, held: list[Unplaced]
    ) -> Waiting:
        """Return the gang that is to start in the room that `gang` has found. This is
        an equal request with an earlier promise that could not be placed in this pass,
        or `gang` itself. The earlier promise is then passed on in turn."""
        likes = (
            self._told_before(gang, before.since, self._now, before.start)
            if before
            else []
        )
        first_unplaced = next(
            (
                unplaced
                for unplaced in held
                if likes and unplaced.gangs[0].job == likes[0][0].job
            ),
            None,
        )
        if first_unplaced is None or before is None:
            return gang
        held.remove(first_unplaced)
        other_gang, promise = likes[0]
        self.turn_to(other_gang)
        self._tell_in_order(
            gang, replace(promise, job=gang.job), before.since, before.start
        )
        return other_gang

    def in_places_of_later(self, gang: Waiting, before: Promise) -> Iterator[None]:
        """Give the promise of a gang that found no room to each equal request behind
        it in turn, so that the gang may take the room that was promised to that one.
        A caller that goes on iterating has found no room, and each keeps its own."""
        promises = [pair for pair in self._look().promises if pair[0].job in self._told]
        for other_gang, promise in told_after(promises, gang, before, self._shunned):
            self._look().take_back(other_gang.job)
            self._record_promise(
                other_gang, replace(before, job=other_gang.job), promise.since
            )
            self._opened.see(self._stop(gang))
            yield
            self._look().take_back(other_gang.job)
            self._record_promise(other_gang, promise, promise.since)
            self._opened.see(self._stop(gang))

    def has_passed_on(self, gang: Waiting) -> Reason | None:
        """Return why the gang waits although it found room, if another gang starts
        there and it got that gang's promise; None otherwise."""
        return next(
            (
                promised(promise)
                for promise in self.promises()
                if promise.job == gang.job
            ),
            None,
        )

    def _told_before(
        self, gang: Waiting, since: float, start: float, latest: float
    ) -> list[tuple[Waiting, Promise]]:
        promises = [
            promise for promise in self._look().promises if promise[0].job in self._told
        ]
        shunned = self._shunned
        return told_before(
            promises, gang, since, start=start, latest=latest, shunned=shunned
        )

    def _put_off(self, gang: Waiting, before: Promise) -> Promise | None:
        """Postpone a promise whose seats are held for longer than expected. Return the
        new promise, if any.

        Gangs that got their promise later must not delay this gang further. Their
        promises are therefore withdrawn and then renewed.
        """
        ahead = self._look()
        unheard = any(seat.node not in self._opened.by_id for seat in before.seats)
        if unheard and self._now < before.start:
            self._record_promise(gang, before, before.since)
            return before
        own_turn = _told((gang, before))
        later_promises = sorted(
            (pair for pair in ahead.promises if _told(pair) > own_turn), key=_told
        )
        for later_gang, _ in later_promises:
            ahead.take_back(later_gang.job)
        next_promise = ahead.again(gang, before)
        if next_promise is not None:
            self._record_promise(gang, next_promise, before.since)
        for later_gang, promise in later_promises:
            self._tell_anew(later_gang, promise)
        return next_promise

    def _tell_anew(self, gang: Waiting, before: Promise) -> None:
        """Renew the promise of a gang whose promise was withdrawn. If the gang could
        start now, it does so in the next pass."""
        promise = self._look().again(gang, before)
        if promise is not None:
            self._look().promise(gang, replace(promise, since=before.since))
        else:
            self._told.discard(gang.job)

    def _next_moment(self) -> float:
        """Return the next time stamp for a promise. Promises of one pass are a
        microsecond apart, which records their order."""
        self._moments += 1
        return self._now + 1e-6 * self._moments

    def _record_promise(self, gang: Waiting, promise: Promise, since: float) -> None:
        self._look().promise(gang, replace(promise, since=since))
        self._told.add(gang.job)

    def reserve(self, gang: Waiting) -> bool:
        """Reserve, for this pass only, the first seats that the gang can get. Return
        whether such seats were found."""
        promise = self._earliest_promise(gang)
        if promise is not None:
            self._look().promise(gang, replace(promise, since=self._next_moment()))
        return promise is not None

    def _earliest_promise(self, gang: Waiting) -> Promise | None:
        promise = self._look().earliest(gang)
        return promise if promise is not None and promise.start > self._now else None

    def _look(self) -> Availability:
        if self._opened.ahead is None:
            ahead = Availability(
                self._opened.by_id,
                [*map(self._as_known, self._ask()), *self._begun],
                now=self._now,
                standing=self._standing,
                kinds=self._kinds,
                holding=self._holding,
            )
            ahead.never_free(self._never_free)
            ahead.shut(self._opened.is_shut)
            self._opened.ahead = ahead
        return self._opened.ahead

    def _as_known(self, one: SeatEnd) -> SeatEnd:
        """Return the given end of seats. An end that lies only a moment after a
        promised start is moved to that start, so that the promise itself does not
        move."""
        start_index = bisect_left(self._starts, one.until) - 1
        start = self._starts[start_index] if start_index >= 0 else self._now
        is_same = self._now < start and one.until - start < SAME_SECONDS
        return replace(one, until=start) if is_same else one

    def _count(self, queue: QueueName) -> int:
        ahead = self._opened.ahead
        promise_pairs = ahead.promises if ahead is not None else []
        return sum(
            promise.job in self._told and self._policy_queue(g).name == queue
            for g, promise in promise_pairs
        )

    def _policy_queue(self, gang: Waiting) -> Queue:
        """Return the queue whose policy orders this gang: the topmost queue on its path
        that has a policy, or the gang's own queue if none has one."""
        path = self._standing.tree.path(gang.queue)
        return next(
            (queue for queue in path if queue.policy != Policy.DEFAULT), path[-1]
        )

    def _stop(self, gang: Waiting) -> float:
        return inf if gang.holds_seconds is None else self._now + gang.holds_seconds


def _told(one: tuple[Waiting, Promise]) -> float:
    """Return the sort key of a promise, by which the earliest made comes first."""
    return one[1].since


def promised(promise: Promise) -> Reason:
    """Return why a gang waits, with its promised start."""
    gpus = sum(seat.gpu_millis for seat in promise.seats)
    blocking_jobs = ", ".join(promise.after)
    when = f", when {blocking_jobs} reach their limits" if blocking_jobs else ""
    kept_text = "GPUs are" if gpus else "nodes are"
    return Reason(
        code=ReasonCode.PROMISED,
        sentence=f"{kept_text} kept for the job: it starts at "
        f"{moment_text(promise.start)} at the latest{when}",
    )
