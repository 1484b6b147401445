"""Checks of promised starts. They keep their own record of who uses the promised seats,
and of what delays a promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from corral.domain.attempt import Attempt, Seat, SeatState
from corral.domain.ids import JobId, NodeId, QueueName
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.reason_code import ReasonCode
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.usage import Reservation
from corral.domain.world import Changes
from corral.simulate.oracles.placement import is_alike, place_in_line
from corral.simulate.oracles.preemption import Giving
from corral.simulate.recorded_state import Books

UP_SECONDS = 60.0  # no start is taken to be longer than that
GONE_SECONDS = 10.0  # after its grace, until it is seen gone
SLACK_SECONDS = 1.0  # a start that is put off by no more is the same
BY_RIGHT = QueueName("")  # stands for all queues
TICK_SECONDS = 5.0  # a head that serves looks again within this


@dataclass(frozen=True, slots=True)
class _Told:
    """A promised start that is still valid, with the clock, queues and nodes at the
    time when it was promised."""

    row: Reservation
    latest: float
    wall_zero: float  # the clock of the head that gave it, at the start of the world
    trees: int
    at: float  # virtual
    given: Counter[QueueName]  # how often each queue had been given something


class Promised:
    """Checks of promised starts. A job that may run beyond a promised start must not
    have the promised seats, and a promise is only delayed with a cause."""

    def __init__(self, books: Books, giving: Giving) -> None:
        self.books = books
        self.giving = giving
        self.told: dict[JobId, _Told] = {}
        self.trees = 0  # how often the queues were changed
        self.given: Counter[QueueName] = Counter()
        # least and most: near, as long as no head's clock was set
        self._zeros: list[float] = []

    def check(self, changes: Changes, decided_at: float, decided_wall: float) -> None:
        """Check a commit. The recorded state must already contain the nodes of the
        commit, but not yet its other rows."""
        self.trees += changes.queues is not None
        previous_promises = dict(self.told)
        zero = decided_wall - decided_at
        zeros = [*self._zeros, zero]
        self._zeros = [min(zeros), max(zeros)]
        for row in changes.reservations:
            self._take_in(row, zero)
        late = _Late(self, changes, decided_wall, zero, previous_promises)
        self.given = late.given
        for known_promise in previous_promises.values():
            self._kept(known_promise, changes, late)
        for row in changes.reservations:
            told_promise = self.told.get(row.job)
            if told_promise is not None and told_promise.row is row:
                self._comes_free(told_promise, late, zero)
        for attempt in late.new:
            self._has_gone_by_then(attempt, late.jobs[attempt.job])
            if attempt.job in previous_promises:
                self._begins_in_order(
                    previous_promises[attempt.job], previous_promises, late
                )
        self._in_order(late.jobs)

    def _take_in(self, row: Reservation, wall_zero: float) -> None:
        if row.latest_start is None or row.ended:
            self.told.pop(row.job, None)
            return
        now, given_counts = self.books.now(), self.given
        self.told[row.job] = _Told(
            row, row.latest_start, wall_zero, self.trees, now, given_counts
        )

    # -- each promise ----------------------------------------------------------------------------

    def _kept(self, known: _Told, changes: Changes, late: _Late) -> None:
        """Check that a known promise still holds after this commit, or that its job
        starts in time. Otherwise the commit must record its end or delay, and there
        must be a cause."""
        job = late.jobs[known.row.job]
        row = next(
            (
                reservation
                for reservation in changes.reservations
                if reservation.job == job.id
            ),
            None,
        )
        if row is None or row.latest_start is None:
            return
        if row.ended == "placed":
            late.starts_in_time(known, job)
        elif job.state != JobState.QUEUED:
            return
        elif row.ended:
            late.is_told(known, "promise_ended")
            late.has_a_cause(known)
        elif row.latest_start > known.latest + SLACK_SECONDS:
            late.is_told(known, "promise_moved")
            late.has_a_cause(known)
            if row.since != known.row.since:
                self.books.breach(
                    "promise", f"{job.id} has lost its place among jobs with promises"
                )

    def _comes_free(self, known: _Told, late: _Late, wall_zero: float) -> None:
        """Check that every job on the promised GPUs must end by the promised time, by
        its own time limit."""
        for attempt in late.holding(_seat_node_ids(known.row.seats), ()):
            job = late.jobs[attempt.job]
            limit, tail = job.spec.max_duration_seconds, job.spec.grace_seconds
            counted_from = (
                inf if limit is None else self._counts_from(attempt, wall_zero)
            )
            if counted_from is None:
                continue
            latest_end = counted_from + (limit or 0.0) + tail
            stays = job.state.is_live and latest_end > known.latest + SLACK_SECONDS
            if stays and _has_common_gpus(attempt.seats, known.row.seats):
                text = f"{known.row.job} is promised GPUs that {job.id} may hold for longer"
                self.books.breach("promise", text)

    def _counts_from(self, attempt: Attempt, wall_zero: float) -> float | None:
        """Return the earliest time from which the attempt's time limit may count, by
        the wall clock of the head that writes now. Return None if the recorded time is
        from another clock, and this head has not received a heartbeat from all of the
        attempt's nodes.

        A limit counts from the time when the gang was up. A head may learn this much
        later, and the job's RUNNING time is only the time of that report (0022).
        """
        up = self.books.evidence.up_since.get((attempt.job, attempt.number))
        truly = inf if up is None else wall_zero + up
        if _is_near(*self._zeros):
            return min(truly, attempt.running_at or attempt.placed_at)
        is_known = attempt.running_at is not None and up is not None
        return truly if is_known and self.books.all_heard(attempt.nodes) else None

    def _has_gone_by_then(self, attempt: Attempt, job: Job) -> None:
        """Check that a job placed on GPUs that are promised to another job has a time
        limit, and must end before the promised start."""
        limit = job.spec.max_duration_seconds
        for known_promise in self.told.values():
            if known_promise.row.job == job.id or not _has_common_gpus(
                attempt.seats, known_promise.row.seats
            ):
                continue
            if limit is None:
                text = (
                    f"{job.id} has no time limit, but has seats that are promised to "
                    f"{known_promise.row.job}"
                )
                self.books.breach("promise", text)
                continue
            overlap_seconds = (
                attempt.placed_at
                + limit
                + job.spec.grace_seconds
                - known_promise.latest
            )
            if overlap_seconds > SLACK_SECONDS:
                text = (
                    f"{job.id} may run {overlap_seconds:.0f} s beyond the start of "
                    f"{known_promise.row.job}"
                )
                self.books.breach("promise", text)

    def _in_order(self, jobs: dict[JobId, Job]) -> None:
        """Check the order of promises: of two equal requests, the job that is first in
        the queue and got its promise first has the earlier promised start."""
        tolds = sorted(self.told.values(), key=lambda one: one.row.since)
        for told_index, later in enumerate(tolds):
            job = jobs[later.row.job]
            for sooner in tolds[:told_index]:
                sooner_job = jobs[sooner.row.job]
                is_first = is_alike(sooner_job, job) and place_in_line(
                    sooner_job
                ) < place_in_line(job)
                if is_first and sooner.latest > later.latest + SLACK_SECONDS:
                    text = f"{job.id} is promised a start before {sooner_job.id}, which is older"
                    self.books.breach("promise", text)

    def _begins_in_order(
        self, begun: _Told, before: dict[JobId, _Told], late: _Late
    ) -> None:
        """Check that a promised job does not start before a similar job that is earlier
        in the queue, got its promise first and could use the same seats (0050).

        Args:
            begun: the promise of the job that starts.
            before: all promises before this commit.
        """
        job, wall = late.jobs[begun.row.job], late.wall
        for sooner in before.values():
            sooner_job = late.jobs[sooner.row.job]
            waits = (
                sooner_job.state == JobState.QUEUED
                and sooner.row.since < begun.row.since
            )
            is_first = (
                is_alike(sooner_job, job)
                and sooner_job.spec.priority == job.spec.priority
                and place_in_line(sooner_job) < place_in_line(job)
            )
            gains = wall + SLACK_SECONDS < sooner.latest <= begun.latest + SLACK_SECONDS
            if waits and is_first and gains and late.is_same_world(sooner):
                text = (
                    f"{job.id} begins before {sooner_job.id}, which is similar and was "
                    "promised a start first"
                )
                self.books.breach("promise", text)

    # -- in time ---------------------------------------------------------------------------------

    def look(self) -> None:
        """Check, in a world without faults, that no promised start is overdue."""
        now, head = self.books.now(), self.books.heads.leading()
        if head is None or now - head.serving_since < TICK_SECONDS:
            return
        wall = head.control.now().wall
        for known_promise in self.told.values():
            overdue_seconds = wall - known_promise.latest
            if overdue_seconds > TICK_SECONDS and _is_near(
                known_promise.wall_zero, wall - now
            ):
                self.books.breach(
                    "promise",
                    f"{known_promise.row.job} still waits {overdue_seconds:.0f} s too long",
                )


class _Late:
    """The promised starts that one commit moves to a later time, and the causes."""

    def __init__(
        self,
        promised: Promised,
        changes: Changes,
        wall: float,
        wall_zero: float,
        before: dict[JobId, _Told],
    ) -> None:
        self._promised = promised
        self._books = books = promised.books
        self._changes = changes
        self.wall = wall
        self._wall_zero = wall_zero
        self._before = before
        self.jobs = books.jobs | {job.id: job for job in changes.jobs}
        self.new = [
            attempt
            for attempt in changes.attempts
            if (attempt.job, attempt.number) not in books.attempts
        ]
        rights = sum(
            reservation.latest_start is None for reservation in changes.reservations
        )
        given_counts = Counter({BY_RIGHT: rights})
        given_counts.update(self.jobs[attempt.job].spec.queue for attempt in self.new)
        self.given = promised.given + given_counts

    def is_told(self, known: _Told, kind: str) -> None:
        id = known.row.job
        if not any(
            event.job == id and event.kind == kind for event in self._changes.events
        ):
            self._books.breach(
                "promise", f"{id} has lost its promised start, but no event reports it"
            )

    def starts_in_time(self, known: _Told, job: Job) -> None:
        overdue_seconds = self.wall - known.latest
        if overdue_seconds > TICK_SECONDS and self.is_same_world(known):
            self._books.breach(
                "promise",
                f"{job.id} starts {overdue_seconds:.0f} s after its promised start",
            )

    def has_a_cause(self, known: _Told) -> None:
        if self.is_same_world(known) and not any(self._find_delay_causes(known)):
            text = f"the promised start of {known.row.job} is delayed without a cause"
            self._books.breach("promise", text)

    def is_same_world(self, known: _Told) -> bool:
        """Return whether the head's clock and the queues are unchanged since the
        promise was given, and its nodes accept work and have sent heartbeats."""
        nodes = [seat.node for seat in known.row.seats]
        takes_work = all(self._books.nodes[node].takes_work for node in nodes)
        is_unchanged = known.trees == self._promised.trees and _is_near(
            known.wall_zero, self._wall_zero
        )
        return is_unchanged and takes_work and self._books.all_heard(nodes)

    def _find_delay_causes(self, known: _Told) -> Iterator[bool]:
        """Yield, for each possible cause of a delayed promise, whether this cause
        applies. Causes are, for example: a job runs beyond its expected end, another
        job has a right to the GPUs, or an earlier promise has moved."""
        # the seats of a sleeping replica may be closed to a job that stops too slowly
        yield any(job.reason_code == ReasonCode.SLEEP for job in self.jobs.values())
        node_ids = {seat.node for seat in known.row.seats}
        for attempt in self.holding(node_ids, known.row.after):
            expected_end = self._expected_end(attempt)
            yield expected_end is not None and (
                expected_end <= self.wall or expected_end > known.latest
            )
            yield any(self._books.was_silent(node, known.at) for node in attempt.nodes)
        rights = (
            reservation
            for reservation in self._changes.reservations
            if reservation.latest_start is None
        )
        yield any(
            _seat_node_ids(kept_reservation.seats) & node_ids
            for kept_reservation in rights
        )
        yield self._may_have_less(known)
        yield any(self._promised.giving.is_kept_on(node) for node in node_ids)
        for other_promise in self._before.values():
            if other_promise.row.since < known.row.since and self._has_moved(
                other_promise
            ):
                yield not self.is_same_world(other_promise) or any(
                    self._find_delay_causes(other_promise)
                )

    def _may_have_less(self, known: _Told) -> bool:
        """Return whether the promised job would have borrowed GPUs, and their queues
        may have taken them back since the promise."""
        job = self.jobs[known.row.job]
        given_before, now = Counter(known.given), Counter(self.given)
        given_before[job.spec.queue] = now[job.spec.queue] = 0
        return now != given_before and self._promised.giving.would_borrow(
            job, self.jobs
        )

    def _has_moved(self, known: _Told) -> bool:
        """Return whether the promise moved to other nodes or to a later start, or is
        gone."""
        now = self._promised.told.get(known.row.job)
        if now is None:
            return True
        elsewhere = _seat_node_ids(now.row.seats) != _seat_node_ids(known.row.seats)
        return elsewhere or now.latest > known.latest + SLACK_SECONDS

    def holding(self, nodes: set[NodeId], after: Iterable[JobId]) -> Iterator[Attempt]:
        """Yield the attempts that held seats on these nodes before this commit and
        still hold them, and those of the jobs in `after`."""
        released = {
            allocation.key
            for allocation in self._changes.allocations
            if allocation.state == SeatState.RELEASED
        }
        keys = {
            (job, number)
            for (job, number, node), state in self._books.seats.items()
            if state != SeatState.RELEASED
            and (job, number, node) not in released
            and (node in nodes or job in after)
        }
        changed_attempts = {
            (attempt.job, attempt.number): attempt for attempt in self._changes.attempts
        }
        for key in sorted(keys):
            yield changed_attempts.get(key) or self._books.attempts[key]

    def _expected_end(self, attempt: Attempt) -> float | None:
        """Return the wall-clock time by which the attempt should have ended; None if
        its job has no time limit."""
        job = self.jobs[attempt.job]
        limit, tail = (
            job.spec.max_duration_seconds,
            job.spec.grace_seconds + GONE_SECONDS,
        )
        if job.state.is_leaving:
            return job.since + tail
        if limit is None:
            return None
        if attempt.running_at is None:
            return attempt.placed_at + UP_SECONDS + limit + tail
        return attempt.running_at + limit + tail


def _is_near(one: float, other: float) -> bool:
    return abs(one - other) < SLACK_SECONDS


def _seat_node_ids(seats: Iterable[Seat]) -> set[NodeId]:
    return {seat.node for seat in seats}


def _has_common_gpus(some: Iterable[Seat], others: Iterable[Seat]) -> bool:
    """Return whether the two groups of seats share whole GPUs."""
    return bool(_whole_gpu_ids(some) & _whole_gpu_ids(others))


def _whole_gpu_ids(seats: Iterable[Seat]) -> set[tuple[NodeId, int]]:
    return {
        (seat.node, index)
        for seat in seats
        for index in seat.gpus
        if seat.gpu_millis % MILLIS_PER_GPU == 0
    }
