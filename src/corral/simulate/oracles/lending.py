"""Checks of sleeping replicas: which jobs start on their GPUs, and that a woken replica
has all of its own."""

from collections.abc import Iterable, Iterator, Mapping

from corral.domain.attempt import Allocation, Attempt, Seat, SeatState
from corral.domain.ids import JobId, ServiceName
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.lending import ReplicaSleep
from corral.domain.service import ReplicaRow, Service, ServiceState
from corral.domain.world import AllocationKey, Changes
from corral.simulate.recorded_state import Books

# rules written out again here, so that a fault there is found
KILL_SECONDS = 1.0
MEASURED_MARGIN = 1.5
NEAR_SECONDS = 1e-6


class LendingOracle:
    """Checks each commit. It is given the commit before the books are, so that these
    hold what was decided before."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._services: dict[ServiceName, Service] = {}
        self._seats: dict[AllocationKey, Seat] = {}

    def check(self, changes: Changes) -> None:
        """Check a commit: new attempts, and replicas that have woken."""
        jobs = {**self._books.jobs, **{job.id: job for job in changes.jobs}}
        for service in changes.services:
            is_over = service.state == ServiceState.STOPPED
            if is_over:
                self._services.pop(service.name, None)
        services = {
            **self._services,
            **{
                service.name: service
                for service in changes.services
                if service.state != ServiceState.STOPPED
            },
        }
        for attempt in changes.attempts:
            if (attempt.job, attempt.number) not in self._books.attempts:
                self._check_start(attempt, jobs, services)
        self._take_seats(changes.allocations)
        for service in changes.services:
            self._check_awake(service, jobs)
        self._services = services

    def _take_seats(self, allocations: tuple[Allocation, ...]) -> None:
        for allocation in allocations:
            if allocation.state == SeatState.RELEASED:
                self._seats.pop(allocation.key, None)
            else:
                self._seats[allocation.key] = allocation.seat

    # -- who starts --------------------------------------------------------------------

    def _check_start(
        self,
        attempt: Attempt,
        jobs: Mapping[JobId, Job],
        services: Mapping[ServiceName, Service],
    ) -> None:
        """Check that the job may start on its seats: on lent ones only if it stops in
        time, and on those of a replica that wakes not at all."""
        job = jobs[attempt.job]
        for service, row, sleep in _sleeps(services.values()):
            if row.job == job.id or not _has_common_gpus(attempt.seats, sleep.seats):
                continue
            if sleep.wakes_at is not None:
                waits = sleep.asleep_at is not None and sleep.room_at is None
                # that of one without a process is in simulate.oracles.preemption
                if waits and jobs[row.job].state == JobState.RUNNING:
                    text = f"{job.id} starts on the GPUs of {row.job}, which wakes"
                    self._books.breach("lent", text)
                continue
            if sleep.asleep_at is None or not self._is_too_slow(job, service, services):
                continue
            text = (
                f"{job.id} starts on GPUs that {row.job} lends: it may take "
                f"{self._stop_seconds(job, services):.1f} s to stop, and a wake "
                f"{_wake_seconds(service):.1f} of "
                f"{service.spec.scale.back_within_seconds:.1f} s"
            )
            self._books.breach("lent", text)

    def _is_too_slow(
        self, job: Job, service: Service, services: Mapping[ServiceName, Service]
    ) -> bool:
        """Return whether the job may take longer to stop than the service can wait."""
        within = service.spec.scale.back_within_seconds
        if within is None:
            return False
        most = within - _wake_seconds(service) + NEAR_SECONDS
        return self._stop_seconds(job, services) > most

    def bars(self, job: Job, seats: tuple[Seat, ...]) -> bool:
        """Return whether a sleeping replica lends these seats, and the job may take
        longer to stop than it can wait."""
        return any(
            sleep.wakes_at is None
            and _has_common_gpus(seats, sleep.seats)
            and self._is_too_slow(job, service, self._services)
            for service, _, sleep in _sleeps(self._services.values())
        )

    def _stop_seconds(self, job: Job, services: Mapping[ServiceName, Service]) -> float:
        grace = job.spec.grace_seconds + KILL_SECONDS
        role = job.spec.replica
        if role is not None:
            service = services.get(role.service)
            return grace + (service.spec.drain_seconds if service else 0.0)
        if job.stop_seconds is not None:
            return min(grace, job.stop_seconds * MEASURED_MARGIN)
        return grace

    # -- who wakes ---------------------------------------------------------------------

    def _check_awake(self, service: Service, jobs: Mapping[JobId, Job]) -> None:
        """Check that a replica that has woken has all the seats of its attempt."""
        old = self._services.get(service.name)
        old_rows = {row.number: row for row in old.replicas} if old is not None else {}
        for row in service.replicas:
            old_row = old_rows.get(row.number)
            if old_row is None or old_row.sleep is None:
                continue
            self._check_victims(row, old_row.sleep)
            if not row.is_ready:
                continue
            key = (row.job, jobs[row.job].attempt)
            attempt = self._books.attempts[key]
            for seat in attempt.seats:
                if self._seats.get((*key, seat.node)) != seat:
                    text = f"{row.job} takes requests without its seat on {seat.node}"
                    self._books.breach("lent", text)

    def _check_victims(self, row: ReplicaRow, before: ReplicaSleep) -> None:
        """Check that a replica that wakes stops only jobs that have started on its
        nodes since it sleeps."""
        sleep = row.sleep
        earlier = {victim.job for victim in before.victims}
        for victim in sleep.victims if sleep is not None else ():
            if victim.job in earlier:
                continue
            attempt = self._books.attempts[victim.job, victim.attempt]
            nodes = {seat.node for seat in before.seats}
            asleep_at = before.asleep_at
            is_later = asleep_at is not None and attempt.placed_at >= asleep_at
            if not (is_later and nodes & set(attempt.nodes)):
                text = f"{victim.job} is stopped for {row.job}, but borrows nothing"
                self._books.breach("lent", text)


def gives_back(books: Books, attempt: Attempt | None) -> bool:
    """Return whether the attempt stops for a replica, on whose GPUs it runs."""
    taker = attempt.gave_way_to if attempt is not None else None
    job = books.jobs.get(taker) if taker is not None else None
    sleeps = (JobState.SUSPENDED, JobState.RUNNING)
    return job is not None and job.spec.replica is not None and job.state in sleeps


def _wake_seconds(service: Service) -> float:
    measured = service.wakes or (service.start_seconds,)
    return max(float("inf") if seconds is None else seconds for seconds in measured)


def _sleeps(
    services: Iterable[Service],
) -> Iterator[tuple[Service, ReplicaRow, ReplicaSleep]]:
    for service in services:
        for row in service.replicas:
            if row.sleep is not None and row.draining_at is None:
                yield service, row, row.sleep


def _has_common_gpus(some: tuple[Seat, ...], others: tuple[Seat, ...]) -> bool:
    used = {(seat.node, index) for seat in some for index in seat.gpus}
    return any((seat.node, index) in used for seat in others for index in seat.gpus)
