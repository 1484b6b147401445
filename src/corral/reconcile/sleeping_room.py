"""Seats of sleeping replicas, as the scheduler needs them: which of them are lent, and
what is kept for the replicas."""

from collections.abc import Iterator

from corral.domain.attempt import Seat
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.lending import ReplicaSleep
from corral.domain.service import ReplicaRow, Service
from corral.reconcile.changeset import Draft
from corral.reconcile.resized_allocations import lent_part, memory_only
from corral.schedule import LentSeat


def lent_seats(draft: Draft) -> Iterator[LentSeat]:
    """Yield the seats that sleeping replicas lend."""
    for service, row, sleep in _sleeps(draft):
        if not sleep.is_lending or row.draining_at is not None:
            continue
        back_within = service.spec.scale.back_within_seconds
        stop_seconds = None
        if back_within is not None:
            wake_seconds = service.wake_seconds
            # nothing is lent while it is not known how long a wake takes
            stop_seconds = -1.0 if wake_seconds is None else back_within - wake_seconds
        for seat in sleep.seats:
            yield LentSeat(
                seat=lent_part(seat),
                service=service.name,
                back_within_seconds=back_within,
                stop_seconds=stop_seconds,
            )


def kept_for_sleepers(draft: Draft) -> Iterator[tuple[Job, Seat]]:
    """Yield the room that is kept for replicas in addition to their allocations: the
    memory of one whose process has ended, and the GPUs of one that waits for them with
    its process."""
    for _, row, sleep in _sleeps(draft):
        job = draft.job(row.job)
        if job is None or row.draining_at is not None:
            continue
        if job.state is JobState.SUSPENDED:
            yield from ((job, memory_only(seat)) for seat in sleep.seats)
        elif _waits_for_room(sleep, job):
            yield from ((job, lent_part(seat)) for seat in sleep.seats)


def _waits_for_room(sleep: ReplicaSleep, job: Job) -> bool:
    return (
        job.state is JobState.RUNNING
        and sleep.asleep_at is not None
        and sleep.wakes_at is not None
        and sleep.room_at is None
    )


def _sleeps(draft: Draft) -> Iterator[tuple[Service, ReplicaRow, ReplicaSleep]]:
    for service in draft.all_services():
        for row in service.replicas:
            if row.sleep is not None:
                yield service, row, row.sleep
