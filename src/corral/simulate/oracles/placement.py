"""Checks of placement: order of the queue, limits, cordons, ports, dependencies."""

from corral.domain.attempt import Allocation, Attempt, SeatState
from corral.domain.ids import JobId, NodeId
from corral.domain.job import After, Job, On
from corral.domain.job_states import JobState
from corral.domain.world import AllocationKey, Changes
from corral.simulate.oracles.lending import LendingOracle
from corral.simulate.oracles.preemption import Giving
from corral.simulate.recorded_state import Books

# rules of late jobs (0139), written out again here so that a fault there is found
LATE_SECONDS = 21_600.0
GRACE_SECONDS = 7_200.0


class PlacementOracle:
    """Checks each placement in a commit against the state that was recorded before that
    commit (`Books`): for example that no node was cordoned and no port is used
    twice."""

    def __init__(self, books: Books, giving: Giving, lending: LendingOracle) -> None:
        self._books = books
        self._lending = lending
        self._giving = giving
        self._ports: dict[NodeId, dict[int, AllocationKey]] = {}
        self._newly_kept: set[JobId] = set()

    def check(self, changes: Changes) -> None:
        """Check every job that this commit places."""
        jobs = self._books.jobs | {job.id: job for job in changes.jobs}
        job_ids = {
            reservation.job
            for reservation in changes.reservations
            if reservation.ended == "placed"
        }
        self._newly_kept = {
            reservation.job
            for reservation in changes.reservations
            if reservation.latest_start is None
        }
        for allocation in changes.allocations:
            self._port(allocation)
        for attempt in changes.attempts:
            if (attempt.job, attempt.number) in self._books.attempts:
                continue
            job = jobs[attempt.job]
            for node in attempt.nodes:
                if self._books.nodes[node].cordoned:
                    self._books.breach(
                        "cordon", f"{job.id} is placed on {node}, which is cordoned"
                    )
            if attempt.number == 1:
                self._after(job, jobs)
            self._check_array_limit(job, jobs)
            # one in place has not waited, and takes nothing from those that wait
            if job.id not in job_ids and not attempt.in_place:
                self._check_queue_order(job, jobs, attempt)

    def _port(self, allocation: Allocation) -> None:
        """Check I3: two attempts never have the same port of a node, until the first of
        them releases the port."""
        taken_ports = self._ports.setdefault(allocation.seat.node, {})
        for port in allocation.ports:
            if allocation.state == SeatState.RELEASED:
                if taken_ports.get(port) == allocation.key:
                    del taken_ports[port]
            elif taken_ports.setdefault(port, allocation.key) != allocation.key:
                self._books.breach(
                    "I3",
                    f"{allocation.key} has port {port}, which {taken_ports[port]} uses",
                )

    def _after(self, job: Job, jobs: dict[JobId, Job]) -> None:
        for dependency in job.spec.after:
            if not _is_met(dependency, jobs[dependency.job]):
                state = jobs[dependency.job].state
                self._books.breach(
                    "after",
                    f"{job.id} is placed, but its dependency {dependency.job} is {state}",
                )

    def _check_array_limit(self, job: Job, jobs: dict[JobId, Job]) -> None:
        limit = job.spec.array_limit
        if job.array is None or limit is None:
            return
        active = sum(
            other_job.array == job.array and other_job.state.is_on_nodes
            for other_job in jobs.values()
        )
        if active > limit:
            self._books.breach(
                "array", f"{active} jobs of {job.array} run at once, more than {limit}"
            )

    def _check_queue_order(
        self, job: Job, jobs: dict[JobId, Job], attempt: Attempt
    ) -> None:
        """Check I10, the order of the queue. Of two jobs that request the same, the job
        with the higher priority starts first, then the job that is placed first because
        of its age, then the job that was submitted earlier."""
        shunned = {
            name
            for other_job in jobs.values()
            for name in other_job.spec.place.apart_from
        }
        if job.spec.name in shunned:
            return
        for previous_job in self._books.jobs.values():
            current_job = jobs[previous_job.id]
            if current_job.spec.name in shunned:
                continue
            waits = previous_job.state == current_job.state == JobState.QUEUED
            # who has seats kept waits for just those
            waits = waits and current_job.id not in self._newly_kept
            waits = waits and not self._giving.is_kept(current_job.id)
            waits = waits and not self._goes_by_age(job, current_job, attempt)
            waits = waits and not self._lending.bars(current_job, attempt.seats)
            if (
                waits
                and is_alike(current_job, job)
                and place_in_line(current_job) < place_in_line(job)
            ):
                self._books.breach(
                    "I10",
                    f"{job.id} is placed before {current_job.id}, an earlier job of the same kind",
                )

    def _goes_by_age(self, job: Job, other: Job, attempt: Attempt) -> bool:
        """Return whether `job` may be placed before `other` because it is late: both
        have the same priority, and `job` has waited long and is at least as late as
        `other`.

        All waits of a job count, by the clocks of the heads that wrote them. If a clock
        is set forward, the waits of waiting jobs become longer.
        """
        if attempt.protected_until is None or job.spec.priority != other.spec.priority:
            return False
        if self._waited(job) < LATE_SECONDS:
            return False
        return self._lateness(job) >= self._lateness(other)

    def _lateness(self, job: Job) -> float:
        """Return the wait of the job divided by its service and a grace time; 0 if it
        has not waited long."""
        waited_seconds = self._waited(job)
        if waited_seconds < LATE_SECONDS:
            return 0.0
        served_seconds = self._books.jobs.get(job.id, job).served_seconds
        return waited_seconds / (served_seconds + GRACE_SECONDS)

    def _waited(self, job: Job) -> float:
        """Return how long the job has waited until this commit, in seconds."""
        previous_job = self._books.jobs.get(job.id, job)
        return (
            previous_job.waited_seconds
            + self._books.decided_wall()
            - previous_job.since
        )


def _is_met(after: After, job: Job) -> bool:
    if after.on == On.STARTED:
        return job.started_at is not None or job.state.is_final
    if after.on == On.ENDED:
        return job.state.is_final
    return job.state == (JobState.DONE if after.on == On.DONE else JobState.FAILED)


def is_alike(one: Job, other: Job) -> bool:
    """Return whether both jobs request the same and could start in the same places.
    False if a checkpoint rule or an array limit binds a job to some places, or if the
    time limits differ, because a job that ends in time may use capacity that is
    reserved for another job."""
    bound = (
        one.spec.checkpoint or other.spec.checkpoint or one.spec.array_limit is not None
    )
    job_spec, other_spec = one.spec, other.spec
    is_same_queue = (one.owner, job_spec.queue, job_spec.preemptible) == (
        other.owner,
        other_spec.queue,
        other_spec.preemptible,
    )
    alike = job_spec.shapes == other_spec.shapes and job_spec.place == other_spec.place
    limits = (job_spec.max_duration_seconds, job_spec.grace_seconds)
    as_long = limits == (other_spec.max_duration_seconds, other_spec.grace_seconds)
    return is_same_queue and not bound and alike and as_long


def place_in_line(job: Job) -> tuple[int, int, int]:
    return (-job.spec.priority, job.submitted, job.spec.array_index or 0)
