"""Checks of restarts in place: the next attempt has the very seats of the failed one,
and nothing else could have got them."""

from collections.abc import Iterable

from corral.domain.attempt import Attempt, Seat, SeatState
from corral.domain.ids import NodeId
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.node import Liveness
from corral.domain.world import AllocationKey, Changes
from corral.simulate.recorded_state import Books

ON_SEATS = (JobState.STARTING, JobState.RUNNING, JobState.RECOVERING)


def gpus_of(seats: Iterable[Seat]) -> set[tuple[NodeId, int]]:
    """Return the GPUs of the seats, each by its node and index."""
    return {(seat.node, index) for seat in seats for index in seat.gpus}


def in_place_keys(attempts: Iterable[Attempt]) -> set[AllocationKey]:
    """Return the keys of the allocations of those attempts that began in place."""
    return {
        (attempt.job, attempt.number, node)
        for attempt in attempts
        if attempt.in_place
        for node in attempt.nodes
    }


def is_paid_now(before: Job, job: Job) -> bool:
    """Return whether it was decided in the commit of this row of the job who pays for
    the restart that was unpaid before."""
    unpaid, newest = before.unpaid, job.unpaid
    if unpaid is None:
        return False
    return newest is None or newest.attempt.number != unpaid.attempt.number


class InPlaceOracle:
    """Checks I3, I7, I9 and I17 for each attempt that begins in place. It is called
    before the books record the commit, but after they have recorded its nodes."""

    def __init__(self, books: Books) -> None:
        self._books = books

    def check(self, changes: Changes) -> None:
        for attempt in changes.attempts:
            is_new = (attempt.job, attempt.number) not in self._books.attempts
            if is_new and attempt.in_place:
                self._check_restart(attempt, changes)

    def _check_restart(self, attempt: Attempt, changes: Changes) -> None:
        key = (attempt.job, attempt.number)
        before = self._books.jobs[attempt.job]
        previous = self._books.attempts.get((attempt.job, before.attempt))
        if previous is None or previous.number != attempt.number - 1:
            self._books.breach("I9", f"{key} is in place of no attempt")
            return
        if attempt.seats != previous.seats:
            self._books.breach(
                "I9", f"{key} is in place, but on {attempt.seats}, not {previous.seats}"
            )
        released = {
            allocation.seat.node
            for allocation in changes.allocations
            if (allocation.job, allocation.attempt) == (previous.job, previous.number)
            and allocation.state == SeatState.RELEASED
        }
        for node in previous.nodes:
            state = self._books.seats.get((previous.job, previous.number, node))
            if node not in released or state not in (
                SeatState.HELD,
                SeatState.STOPPING,
            ):
                self._books.breach(
                    "I3", f"{key} is in place on {node}, where its seat was {state}"
                )
            row = self._books.nodes[node]
            if row.liveness != Liveness.ALIVE or row.draining or row.suspect:
                self._books.breach(
                    "I7", f"{key} is in place on {node}, but it is {row}"
                )
        if before.state not in ON_SEATS:
            self._books.breach("I9", f"{key} is in place of a {before.state} job")
        after = next(job for job in changes.jobs if job.id == attempt.job)
        if before.unpaid is not None and not is_paid_now(before, after):
            self._books.breach(
                "I17", f"{key} begins, and the restart before it is not paid"
            )
        spec = before.spec
        if spec.replica is not None or len(spec.shapes) != 1:
            self._books.breach("I9", f"{key} is in place, but its seats are not fixed")
