"""The live decision in virtual time: from event to event, a pass of `schedule.decide` at each.

The same function as in the head decides here; the nodes and the queues' standing are kept in step
with what it decides, and are never made anew.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import inf, nextafter
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId, QueueName
from corral.replay.learning import Learning
from corral.replay.played import Job, Kept, endings_of, may_give_way, standing_of
from corral.replay.present import Coming, Happened, Holder, Kind, Present, Terms
from corral.schedule import Fleet, Groups, NodeRoom, Placed, Reserved, Running, Waiting, decide
from corral.schedule.decide import PATIENCE_SECONDS
from corral.schedule.elder import protected_until
from corral.schedule.learned import Lessons
from corral.schedule.limits import holding_of
from corral.schedule.shares import Shares
from corral.schedule.standing import Holding

TOGETHER_SECONDS: Final = 1e-6  # events so near to one another are one
MOST_AT_ONCE: Final = 20  # passes at one moment, should it not come to rest


class Play:
    """One way that things may go on from the present.

    Args:
        seconds: what each gang of the present still needs: one that holds seats, until its end if
            it is let; one that waits, of service.
        coming: who will be submitted, the soonest first.
        lessons: learns from each end; None keeps to what is learned at present.
        hear: is told of each start, stop and end, in the order in which they happen.
    """

    def __init__(
        self,
        present: Present,
        seconds: Mapping[JobId, float],
        coming: Sequence[Coming] = (),
        *,
        terms: Terms = Terms(),  # noqa: B008 - frozen
        hear: Callable[[Happened], object] | None = None,
        lessons: Lessons | None = None,
    ) -> None:
        self.now = present.now
        self.passes = 0
        self._terms, self._hear = terms, hear
        self._learning = Learning(lessons, present.learned)
        self._guard_seconds = present.tree.guard_seconds
        self._suspicion, self._stripped = present.suspicion, present.stripped
        self._nodes = {node.id: node for node in present.nodes}
        self._types = {n.id: n.inventory.types for n in present.nodes}
        self._fleet = Fleet(present.nodes)
        self._standing = standing_of(present, coming, self._fleet)
        self._on: dict[NodeId, dict[JobId, Seat]] = {node.id: {} for node in present.nodes}
        self._jobs: dict[JobId, Job] = {}
        self._queues: set[QueueName] = set()  # of these jobs
        self._running: dict[JobId, Job] = {}
        self._waiting = Groups()
        self._of_array: Counter[JobId] = Counter()
        self._kept: dict[JobId, Kept] = {}
        self._promised = tuple(present.promised)
        self._ends: list[tuple[float, tuple[int, int], JobId, int]] = []
        self._patience: deque[tuple[float, JobId, float]] = deque()
        self._coming, self._came, self._is_new = coming, 0, True
        self._rooms, self._shares = dict[NodeId, NodeRoom](), Shares()
        self._fill(present, seconds)

    def _fill(self, present: Present, seconds: Mapping[JobId, float]) -> None:
        known = [*present.waiting, *(holder.gang for holder in present.holders)]
        for gang in sorted(known, key=lambda gang: gang.order):
            self._shares.arrive(gang.shapes[0])
        for gang in sorted(present.waiting, key=lambda gang: gang.since):
            self._enter(gang, seconds[gang.job])
        for holder in present.holders:
            self._seat(holder, seconds[holder.gang.job])
        for node in present.nodes:
            if node.takes_work and node.id not in present.closed:
                self._rooms[node.id] = self._room(node.id)
        for one in present.reserved:
            self._keep(one)
            for job in self._left(self._kept[one.job]):
                job.told_by = one.job if one.pending and job.stopping else None

    def present(self) -> Present:
        """Where it is now: another play goes on from it, knowing no more than a head would."""
        return Present(
            now=self.now,
            nodes=list(self._nodes.values()),
            tree=self._standing.tree,
            past=self._standing.past,
            holders=[job.as_holder() for job in self._running.values()],
            waiting=[gang for gangs in self._waiting for gang in gangs],
            reserved=[self._reserved(one) for one in self._kept.values()],
            promised=self._promised,
            closed=frozenset(self._nodes.keys() - self._rooms.keys()),
            suspicion=self._suspicion,
            stripped=self._stripped,
            learned=self._learning.table,
        )

    # -- forward ---------------------------------------------------------------------------------

    def run(
        self, *, until: float = inf, job: JobId | None = None, most_passes: float = inf
    ) -> float | None:
        """From event to event until nothing more happens before `until` (wall clock).

        With a job it stops as soon as that one has started, and answers when; None: it has not.
        """
        most = self.passes + most_passes
        while self.passes < most:
            if job is not None and job in self._running:
                return self._running[job].placed_at
            at = self.now if self._is_new else self._next()
            if at > until or at == inf:
                break
            self._step(max(at, self.now))
        return None

    def _next(self) -> float:
        """The next end or submission; or the moment at which somebody is told to give way, or has
        waited for so long that nodes may be kept for it."""
        while self._ends and not self._is_due(self._ends[0]):
            heappop(self._ends)
        while self._patience and not self._still_waits(self._patience[0]):
            self._patience.popleft()
        soonest = self._ends[0][0] if self._ends else inf
        soonest = min(soonest, self._patience[0][0] if self._patience else inf)
        if self._came < len(self._coming):
            soonest = min(soonest, self._coming[self._came].at)
        soonest = min(soonest, max(self.now, self._learning.due_at))
        return min([soonest, *(self._due_at(one) for one in self._kept.values())])

    def _is_due(self, end: tuple[float, tuple[int, int], JobId, int]) -> bool:
        """Whether it still runs in the start that this end was planned for."""
        return end[2] in self._running and self._running[end[2]].starts == end[3]

    def _still_waits(self, patient: tuple[float, JobId, float]) -> bool:
        gang = self._waiting.get(patient[1])
        return gang is not None and gang.since == patient[2]

    def _step(self, now: float) -> None:
        """All that happens at this moment, and then passes until nobody more gives way."""
        self._standing.pass_time(now - self.now)
        self.now = now
        while self._ends and self._ends[0][0] <= now + TOGETHER_SECONDS:
            end = heappop(self._ends)
            if self._is_due(end):
                self._leave(end[2])
        while self._came < len(self._coming) and self._coming[self._came].at <= now:
            at, gang, seconds, can_save = self._coming[self._came]
            self._came += 1
            self._shares.arrive(gang.shapes[0])
            self._enter(replace(gang, since=at), seconds, can_save=can_save)
        while self._patience and self._patience[0][0] <= now:
            self._is_new |= self._still_waits(self._patience.popleft())
        self._is_new |= any(self._due_at(one) <= now for one in self._kept.values())
        self._is_new |= self._learning.due_at <= now
        most = self.passes + MOST_AT_ONCE
        while self._is_new:  # as in the head: who can start without them is placed first
            self._is_new = False
            if self.passes == most:
                break
            if self._waiting:
                self._pass()
            self._tell_due()
            self._is_new |= self._learning.learn(now, self._served)

    # -- jobs come and go ------------------------------------------------------------------------

    def _enter(self, gang: Waiting, seconds: float, *, can_save: bool = True) -> None:
        self._queues.add(gang.queue)
        self._jobs[gang.job] = Job(
            gang=gang,
            needs_seconds=seconds,
            left_seconds=seconds,
            can_save=can_save,
            restart_seconds=self._terms.restart_seconds,
        )
        self._wait(gang)

    def _wait(self, gang: Waiting) -> None:
        self._waiting.put(gang)
        self._is_new = True
        over = gang.since + PATIENCE_SECONDS
        over = over if over - gang.since >= PATIENCE_SECONDS else nextafter(over, inf)
        if over > self.now:
            self._patience.append((over, gang.job, gang.since))

    def _seat(self, holder: Holder, seconds: float) -> None:
        """One that has its seats from the beginning on."""
        ran = max(0.0, self.now - holder.placed_at)
        job = Job(
            gang=holder.gang,
            needs_seconds=ran + seconds,
            left_seconds=ran + seconds,
            can_save=holder.can_save,
            restart_seconds=holder.restart_seconds,
            gone_at=holder.frees_at,
            comes_back=holder.comes_back,
        )
        self._jobs[holder.gang.job] = job
        self._queues.add(holder.gang.queue)
        self._begin(job, holder.seats, holder.port, holder.placed_at)
        if holder.frees_at is not None:
            heappush(self._ends, (holder.frees_at, job.gang.order, job.gang.job, job.starts))
        self._standing.take(self._holding(job.gang, holder.seats))

    def _start(self, placed: Placed) -> None:
        """The pass has taken its seats already, and counted them for its queue."""
        job = self._jobs[placed.job]
        job.overhead_seconds = job.restart_seconds if job.starts else 0.0
        self._waiting.drop(placed.job)
        self._kept.pop(placed.job, None)
        self._begin(job, placed.seats, placed.port, self.now)
        self._tell(Kind.STARTED, job)

    def _begin(self, job: Job, seats: tuple[Seat, ...], port: int, at: float) -> None:
        gang = job.gang
        job.seats, job.port, job.placed_at, job.known = seats, port, at, None
        job.starts, job.protected_until = job.starts + 1, protected_until(gang.since, at)
        self._running[gang.job] = job
        for seat in seats:
            self._on[seat.node][gang.job] = seat
        if gang.array is not None:
            self._of_array[gang.array] += 1
        heappush(self._ends, (job.ends_at, gang.order, gang.job, job.starts))

    def _leave(self, id: JobId) -> None:
        """Its seats come free: it has ended, or it gives way and waits again in its old place."""
        job = self._running.pop(id)
        self._free(job)
        self._is_new = True
        done = job.worked_seconds(self.now)
        if not job.comes_back or done >= job.left_seconds - TOGETHER_SECONDS:
            job.left_seconds = 0.0
            self._tell(Kind.ENDED, job)
            self._learning.hear(job.gang, done)
            return
        job.left_seconds = job.left_seconds - done if job.can_save else job.needs_seconds
        self._tell(Kind.PREEMPTED, job)
        job.gone_at, job.comes_back, job.told_by = None, False, None
        job.gang = job.back_in_line(self.now, done)
        self._wait(job.gang)

    def _served(self) -> Iterator[tuple[Waiting, float]]:
        for job in self._running.values():
            yield job.gang, job.gang.served_seconds + job.worked_seconds(self.now)
        for gangs in self._waiting:
            yield from ((gang, gang.served_seconds) for gang in gangs)

    def _free(self, job: Job) -> None:
        gang = job.gang
        for seat in job.seats:
            del self._on[seat.node][gang.job]
            if seat.node in self._rooms:
                room = self._rooms[seat.node]
                room.give(seat, kin=gang.kin, apart_from=gang.place.apart_from)
        if job.port and job.seats[0].node in self._rooms:
            self._rooms[job.seats[0].node].give_port(job.port)
        if gang.array is not None:
            self._of_array[gang.array] -= 1
        self._standing.give(self._holding(gang, job.seats))

    def _holding(self, gang: Waiting, seats: Sequence[Seat]) -> Holding:
        return holding_of(gang.queue, gang.user, seats, self._types, preemptible=gang.preemptible)

    def _tell(self, kind: Kind, job: Job) -> None:
        if self._hear is not None:
            service = job.needs_seconds - job.left_seconds
            happened = Happened(self.now, kind, job.gang.job, job.seats, service, job.told_by)
            self._hear(happened)

    # -- a pass ----------------------------------------------------------------------------------

    def _pass(self) -> None:
        self.passes += 1
        before = [self._reserved(one) for one in self._kept.values()]
        decision = decide(
            self._rooms.values(),
            self._waiting,
            fleet=self._fleet,
            now=self.now,
            running_of_array=self._of_array,
            standing=self._standing,
            learned=self._learning.table,
            running=self._candidates,
            reserved=before,
            shares=self._shares,
            ends=lambda: endings_of(self._running.values(), self._holding),
            known=self._promised,
        )
        self._promised = decision.promised
        for placed in decision.placed:
            self._start(placed)
        for dropped in decision.dropped:
            del self._kept[dropped]
        for one in decision.reserved:
            self._keep(one)
        self._take_back([*before, *decision.reserved])
        # shares have changed, and what is kept: the next look of a head might decide more
        self._is_new |= bool(decision.placed or decision.dropped or decision.reserved)

    def _take_back(self, reserved: Sequence[Reserved]) -> None:
        """A pass counts what it keeps as taken; here it is not, as the next pass keeps it anew."""
        for node in {seat.node for one in reserved for seat in one.seats}:
            if node in self._rooms:
                self._rooms[node] = self._room(node)
        for one in self._kept.values():
            gang, seats = self._jobs[one.reserved.job].gang, one.reserved.seats
            self._standing.give(self._holding(gang, seats))

    def _room(self, id: NodeId) -> NodeRoom:
        """What is free on the node, by who holds seats there."""
        room = NodeRoom(self._nodes[id], suspicion=self._suspicion.get(id, 0))
        for job, seat in self._on[id].items():
            gang, port = self._jobs[job].gang, self._jobs[job].port
            room.take(seat, kin=gang.kin, apart_from=gang.place.apart_from)
            if port in room.free_ports and self._jobs[job].seats[0].node == id:
                room.free_ports.remove(port)
        return room

    def _candidates(self) -> list[Running]:
        """Those that somebody might have a right to stop, and all that are stopping, as the head
        would tell of them."""
        tree, over = self._standing.tree, self._standing.over_millis
        queues = tree.queues if len(self._queues) > 1 else ()
        beyond = {q.name for q in queues if any(over(one.name) for one in tree.path(q.name))}
        found = [
            job
            for job in self._running.values()
            if job.stopping or job.can_save or may_give_way(tree, job.gang, beyond)
        ]
        return [self._known(job) for job in sorted(found, key=lambda job: job.gang.order)]

    def _known(self, job: Job) -> Running:
        """The same object as before as long as it would be equal."""
        guard_over = self.now >= job.placed_at + self._guard_seconds
        known = None if self._terms.save_seconds or not job.can_save else job.known
        if known is None or (known.guard_over, known.stopping) != (guard_over, job.stopping):
            every = self._terms.save_seconds
            known = job.known = job.as_running(self.now, guard_over, save_seconds=every)
        return known

    # -- who gives way ---------------------------------------------------------------------------

    def _keep(self, reserved: Reserved) -> None:
        running = self._running
        victims = tuple((id, running[id].starts) for id in reserved.victims if id in running)
        self._kept[reserved.job] = Kept(reserved=reserved, victims=victims)

    def _left(self, kept: Kept) -> list[Job]:
        """The victims that still hold their seats."""
        found = ((self._running.get(id), start) for id, start in kept.victims)
        return [job for job, start in found if job is not None and job.starts == start]

    def _reserved(self, kept: Kept) -> Reserved:
        """As it stands now."""
        left = self._left(kept)
        nodes = {seat.node for seat in kept.reserved.seats}
        return replace(
            kept.reserved,
            victims=tuple(job.gang.job for job in left),
            pending=any(
                job.told_by == kept.reserved.job and any(seat.node in nodes for seat in job.seats)
                for job in left
            ),
        )

    def _due_at(self, kept: Kept) -> float:
        """When all are past their guard who were not told yet; never, when there are none."""
        untold = [job.placed_at for job in self._left(kept) if not job.stopping]
        return max(untold) + self._guard_seconds if untold else inf

    def _tell_due(self) -> None:
        """All victims of a gang are told together, and come free after their grace."""
        for kept in [one for one in self._kept.values() if self._due_at(one) <= self.now]:
            for job in self._left(kept):
                if not job.stopping:
                    self._stop(job, kept.reserved.job)

    def _stop(self, job: Job, by: JobId) -> None:
        gone_at = self.now + self._terms.grace_seconds
        job.gone_at, job.comes_back, job.told_by = gone_at, True, by
        if gone_at <= self.now:
            self._leave(job.gang.job)
        elif gone_at < job.ends_at:
            heappush(self._ends, (gone_at, job.gang.order, job.gang.job, job.starts))
