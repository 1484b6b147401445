"""Sleep of replicas: they fall asleep, lend their GPUs, and wake. With an engine that
can sleep, the process stays and the allocation shrinks to its memory. Otherwise the job
is suspended, and resumed on the same node."""

from dataclasses import replace
from typing import Final

from corral.domain.attempt import Allocation
from corral.domain.event_kind import EventKind
from corral.domain.job import Job
from corral.domain.job_states import JobEvent, JobState, StopWhy
from corral.domain.lending import ParkBy, ReplicaSleep
from corral.domain.reason_code import ReasonCode
from corral.domain.resources import Shape
from corral.domain.service import ReplicaRow, Service
from corral.domain.units import duration_text
from corral.domain.usage import Reservation
from corral.reconcile.changeset import Draft
from corral.reconcile.preemption.reservations import (
    end_reservations_on,
)
from corral.reconcile.preemption.takings import tell_taking
from corral.reconcile.preemption.victim_records import update_victim
from corral.reconcile.resized_allocations import lent_part, memory_only, resize
from corral.reconcile.services.finished_requests import has_finished
from corral.reconcile.services.lending import (
    choose_victims,
    has_room,
    stop_victims,
    with_borrows,
    with_wake,
    without_sleep,
)
from corral.reconcile.services.probe_reports import probe_report
from corral.reconcile.services.replica_state import replica_name

# An engine that has not fallen asleep within this time is ended like one that cannot.
ENGINE_SLEEP_SECONDS: Final = 120.0
# An engine that is not awake within this time after it has its GPUs is restarted.
ENGINE_WAKE_SECONDS: Final = 300.0
_FALLING: Final = frozenset({JobState.RUNNING, JobState.STOPPING, JobState.SUSPENDED})
_WAKING: Final = frozenset({JobState.QUEUED, JobState.STARTING, JobState.RUNNING})


def is_asleep_job(job: Job) -> bool:
    """Return whether the job is suspended, or being suspended, because it sleeps."""
    return job.reason_code is ReasonCode.SLEEP


def put_to_sleep(draft: Draft, service: Service, row: ReplicaRow) -> Service:
    """Return the service with a replica that gets no new requests, and falls asleep
    once it has finished those that have begun."""
    text = f"{replica_name(service, row)} gets no new requests: it is to sleep"
    draft.tell(EventKind.REPLICA_DRAINING, text, job=service.id)
    changed = replace(
        row.not_ready(draft.now.wall), sleep=ReplicaSleep(since=draft.now.wall)
    )
    return service.with_row(changed)


def wake(draft: Draft, service: Service, row: ReplicaRow) -> Service:
    """Return the service with a sleeping replica that is to take requests again. Jobs
    on its GPUs are asked to stop at once."""
    sleep = row.sleep
    if sleep is None or sleep.wakes_at is not None:
        return service
    if sleep.asleep_at == draft.now.wall:
        return service  # its allocation has just shrunk, and grows in the next pass
    job = draft.job(row.job)
    is_awake = job is not None and job.state is JobState.RUNNING
    if sleep.asleep_at is None and sleep.finished_at is None and is_awake:
        return service.with_row(replace(row, sleep=None))
    now = draft.now.wall
    victims = stop_victims(draft, row, choose_victims(draft, row, sleep))
    names = ", ".join(victim.job for victim in victims)
    text = f"{replica_name(service, row)} wakes"
    text += f"; it takes back its GPUs from {names}" if names else ""
    draft.tell(EventKind.REPLICA_WAKES, text, job=service.id)
    # an engine that had not reported its sleep still has its GPUs
    room_at = now if sleep.asleep_at is None and is_awake else None
    sleep = replace(sleep, wakes_at=now, room_at=room_at, victims=victims)
    row = replace(row, sleep=sleep)
    service = service.with_row(row)
    return _follow_wake(draft, service, row, job) if job is not None else service


def follow_sleep(draft: Draft, service: Service) -> Service:
    """Return the service with the present state of its sleeping and waking replicas."""
    for row in service.replicas:
        if row.sleep is None:
            continue
        job = draft.job(row.job)
        if job is None or row.draining_at is not None or not _is_possible(row, job):
            if job is not None and row.sleep.finished_at is not None:
                # it has no requests to finish, and must not wake before it stops
                row = replace(row, finished_attempt=job.attempt)
            service = without_sleep(draft, service, row)
            continue
        service = with_borrows(draft, service, row)
        row = service.row_of(row.job) or row
        if row.is_sleeping:
            service = service.with_row(_fall_asleep(draft, service, row, job))
        else:
            service = _follow_wake(draft, service, row, job)
    return service


def _is_possible(row: ReplicaRow, job: Job) -> bool:
    """Return whether the job is in a state in which its replica sleeps or wakes; a user
    or a fault may have changed it."""
    sleep = row.sleep
    assert sleep is not None
    if job.state in (JobState.STOPPING, JobState.SUSPENDED):
        return is_asleep_job(job)
    if sleep.wakes_at is None:
        return job.state in _FALLING
    return job.state in _WAKING


# -- to sleep --------------------------------------------------------------------------


def _fall_asleep(
    draft: Draft, service: Service, row: ReplicaRow, job: Job
) -> ReplicaRow:
    sleep, now = row.sleep, draft.now.wall
    assert sleep is not None
    if sleep.asleep_at is not None or job.state is JobState.STOPPING:
        return row
    if job.state is JobState.SUSPENDED:
        return _asleep(draft, service, row, sleep)
    if sleep.finished_at is None:
        if not has_finished(draft, service, row, sleep.since):
            return row
        attempt = draft.attempt(job.id)
        assert attempt is not None
        sleep = replace(sleep, finished_at=now, seats=attempt.seats)
        row = replace(row, sleep=sleep)
    finished_at = sleep.finished_at if sleep.finished_at is not None else now
    if not is_parked_in_engine(service, row, job):
        return _suspend(draft, service, row, job)
    if _engine_sleeps(draft, job) is True:
        for allocation in _allocations(draft, job):
            resize(draft, allocation, memory_only(allocation.seat))
        return _asleep(draft, service, row, sleep)
    if not 0.0 <= now - finished_at < ENGINE_SLEEP_SECONDS:
        return _suspend(draft, service, row, job)
    return row


def is_parked_in_engine(service: Service, row: ReplicaRow, job: Job) -> bool:
    """Return whether the replica's process stays while it sleeps."""
    role = job.spec.replica
    return (
        role is not None
        and role.sleep is not None
        and service.spec_of(row.revision).park is ParkBy.ENGINE
    )


def _engine_sleeps(draft: Draft, job: Job) -> bool | None:
    attempt = draft.attempt(job.id)
    report = probe_report(draft, attempt) if attempt is not None else None
    return report.is_asleep if report is not None else None


def _allocations(draft: Draft, job: Job) -> list[Allocation]:
    attempt = draft.attempt(job.id)
    return draft.seats_of(attempt) if attempt is not None else []


def _suspend(draft: Draft, service: Service, row: ReplicaRow, job: Job) -> ReplicaRow:
    draft.move(
        job,
        JobEvent.ASKED_SUSPEND,
        reason=f"it sleeps until service {service.name} needs it",
        code=ReasonCode.SLEEP,
        why=StopWhy.SUSPEND,
    )
    # its requests have finished, and gateways report none of a replica without a route
    return replace(row, finished_attempt=job.attempt)


def _asleep(
    draft: Draft, service: Service, row: ReplicaRow, sleep: ReplicaSleep
) -> ReplicaRow:
    text = f"{replica_name(service, row)} sleeps; its GPUs can be lent"
    draft.tell(EventKind.REPLICA_ASLEEP, text, job=service.id)
    return replace(row, sleep=replace(sleep, asleep_at=draft.now.wall))


# -- and back --------------------------------------------------------------------------


def _follow_wake(draft: Draft, service: Service, row: ReplicaRow, job: Job) -> Service:
    sleep = row.sleep
    assert sleep is not None
    victims = tuple(update_victim(draft, victim) for victim in sleep.victims)
    if victims != sleep.victims:
        sleep = replace(sleep, victims=victims)
        row = replace(row, sleep=sleep)
        service = service.with_row(row)
    if row.ready_at is not None:
        return _awake(draft, service, row, sleep)
    if job.state is JobState.SUSPENDED:
        _resume(draft, job, sleep)
        return service
    if job.state is JobState.STOPPING:
        return service
    if sleep.room_at is not None:
        return _restart_late(draft, service, row, job, sleep.room_at)
    if job.state is JobState.QUEUED:
        return service
    if _is_shrunken(draft, job, sleep):
        return _take_room(draft, service, row, job, sleep)
    return _with_room(draft, service, row, sleep)  # placed again


def _resume(draft: Draft, job: Job, sleep: ReplicaSleep) -> None:
    """Queue the job of a sleeping replica. Its seats are kept for it, and freed by the
    jobs that use them."""
    nodes = [draft.node(seat.node) for seat in sleep.seats]
    moved = draft.move(
        job,
        JobEvent.ASKED_RESUME,
        reason="its service needs it again",
        code=ReasonCode.RESUMED,
    )
    if not sleep.seats or not all(
        node is not None and node.takes_work for node in nodes
    ):
        return
    # a job that waits for the rest of its room may have lent GPUs kept for it
    end_reservations_on(draft, sleep.seats, job.id)
    spec = moved.spec
    draft.reservations[job.id] = Reservation(
        job=job.id,
        shape=_shape_of(spec.shapes, sleep),
        seats=sleep.seats,
        victims=sleep.victims,
        since=draft.now.wall,
    )


def _shape_of(shapes: tuple[Shape, ...], sleep: ReplicaSleep) -> Shape:
    """Return the shape in which the replica ran before it fell asleep."""
    return next(
        (
            shape
            for shape in shapes
            if shape.nodes == len(sleep.seats) and shape.gpu_millis == sleep.gpu_millis
        ),
        shapes[0],
    )


def _is_shrunken(draft: Draft, job: Job, sleep: ReplicaSleep) -> bool:
    """Return whether the job still runs on the seats on which it fell asleep."""
    nodes = {seat.node for seat in sleep.seats}
    return any(
        allocation.seat.node in nodes
        and sleep.asleep_at is not None
        and allocation.began == sleep.asleep_at
        for allocation in _allocations(draft, job)
    )


def _take_room(
    draft: Draft, service: Service, row: ReplicaRow, job: Job, sleep: ReplicaSleep
) -> Service:
    """Return the service after the next step towards the GPUs of a waking replica: its
    allocation grows back once all of them are free."""
    if not all(has_room(draft, row, lent_part(seat)) for seat in sleep.seats):
        stopped = stop_victims(draft, row, choose_victims(draft, row, sleep))
        if not stopped:
            since = sleep.wakes_at if sleep.wakes_at is not None else draft.now.wall
            return _restart_late(draft, service, row, job, since)
        sleep = replace(sleep, victims=(*sleep.victims, *stopped))
        return service.with_row(replace(row, sleep=sleep))
    seats = {seat.node: seat for seat in sleep.seats}
    for allocation in _allocations(draft, job):
        resize(draft, allocation, seats[allocation.seat.node])
    taken = [victim for victim in sleep.victims if victim.was_stopped]
    if taken:
        tell_taking(draft, job, taken, sleep.gpu_millis)
    return _with_room(draft, service, row, sleep)


def _with_room(
    draft: Draft, service: Service, row: ReplicaRow, sleep: ReplicaSleep
) -> Service:
    now = draft.now.wall
    service = replace(service, lent=service.lent.with_sleep(sleep, now))
    return service.with_row(replace(row, sleep=replace(sleep, room_at=now)))


def _restart_late(
    draft: Draft, service: Service, row: ReplicaRow, job: Job, since: float
) -> Service:
    """Restart the replica if it has not got its GPUs, or its engine has not woken,
    for long since this time."""
    seconds = draft.now.wall - since
    is_late = job.state is JobState.RUNNING and seconds >= ENGINE_WAKE_SECONDS
    if not is_late or not is_parked_in_engine(service, row, job):
        return service
    moved = draft.move(
        job,
        JobEvent.PREEMPTED,
        reason=f"its engine has not been awake for {duration_text(seconds)}",
        code=ReasonCode.REQUEUE,
    )
    draft.put(replace(moved, why=StopWhy.REQUEUE))
    return without_sleep(draft, service, row)


def _awake(
    draft: Draft, service: Service, row: ReplicaRow, sleep: ReplicaSleep
) -> Service:
    now = draft.now.wall
    if sleep.wakes_at is None:
        return without_sleep(draft, service, row)
    name, seconds = replica_name(service, row), max(0.0, now - sleep.wakes_at)
    if sleep.victims:
        text = f"{name} has its lent GPUs again, and is ready after {seconds:.1f} s"
        draft.tell(EventKind.LENT_TAKEN_BACK, text, job=service.id)
    else:
        text = f"{name} is awake after {seconds:.1f} s, and takes requests"
        draft.tell(EventKind.REPLICA_READY, text, job=service.id)
    return without_sleep(draft, with_wake(service, sleep, now), row)
