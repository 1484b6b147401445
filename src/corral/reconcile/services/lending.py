"""GPUs of sleeping replicas: which jobs use them, and which of these stop so that a
replica gets them back."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from corral.domain.attempt import Allocation, Seat
from corral.domain.ids import JobId, NodeId
from corral.domain.job import Job
from corral.domain.job_states import JobEvent, StopWhy
from corral.domain.lending import KEPT_WAKES, Borrow, LentTotals, ReplicaSleep
from corral.domain.reason_code import ReasonCode
from corral.domain.service import ReplicaRow, Service
from corral.domain.usage import PreemptWhy, Victim
from corral.reconcile.changeset import Draft
from corral.reconcile.preemption.texts import name_of
from corral.reconcile.resized_allocations import lent_part
from corral.reconcile.stop_time import stop_seconds
from corral.schedule import NodeRoom


def borrowers_of(draft: Draft, row: ReplicaRow, sleep: ReplicaSleep) -> list[Borrow]:
    """Return the jobs that use GPUs of a replica since it sleeps. A replica without
    GPUs lends only CPUs, which are not counted."""
    if sleep.asleep_at is None:
        return []
    borrows: dict[JobId, Borrow] = {}
    for seat in sleep.seats:
        for allocation in _others(draft, row, seat.node):
            job = draft.job(allocation.job)
            millis = _shared_millis(seat, allocation.seat)
            if job is None or not millis or allocation.began < sleep.asleep_at:
                continue
            present = borrows.get(job.id)
            borrows[job.id] = Borrow(
                job=job.id,
                attempt=allocation.attempt,
                queue=job.spec.queue,
                owner=job.owner,
                since=allocation.began,
                gpu_millis=millis + (present.gpu_millis if present is not None else 0),
                gpu_type=_gpu_type(draft, seat),
            )
    return [borrows[id] for id in sorted(borrows)]


def _shared_millis(seat: Seat, other: Seat) -> int:
    """Return how many thousandths of the seat's GPUs the other seat uses."""
    if not other.gpus:
        return 0
    share = other.gpu_millis // len(other.gpus)
    return share * len(set(seat.gpus) & set(other.gpus))


def _gpu_type(draft: Draft, seat: Seat) -> str:
    node = draft.node(seat.node)
    types = node.inventory.types if node is not None else ()
    return next((types[index] for index in seat.gpus if index < len(types)), "")


def _others(draft: Draft, row: ReplicaRow, node: NodeId) -> list[Allocation]:
    """Return the unreleased allocations of other jobs on the node."""
    return [
        allocation
        for allocation in draft.held()
        if allocation.seat.node == node and allocation.job != row.job
    ]


def with_borrows(draft: Draft, service: Service, row: ReplicaRow) -> Service:
    """Return the service with the jobs that use GPUs of the replica now. Loans that
    have ended are added to its sums."""
    sleep = row.sleep
    assert sleep is not None
    present = {
        (borrow.job, borrow.attempt): borrow
        for borrow in borrowers_of(draft, row, sleep)
    }
    before = {(borrow.job, borrow.attempt): borrow for borrow in sleep.borrows}
    totals = service.lent
    for key in before.keys() - present.keys():
        totals = _with_ended(draft, totals, row, before[key])
    borrows = tuple({**present, **before}[key] for key in sorted(present))
    if borrows == sleep.borrows and totals is service.lent:
        return service
    changed = replace(row, sleep=replace(sleep, borrows=borrows))
    return replace(service, lent=totals).with_row(changed)


def _with_ended(
    draft: Draft, totals: LentTotals, row: ReplicaRow, borrow: Borrow
) -> LentTotals:
    attempt = draft.attempt(borrow.job)
    is_taken_back = (
        attempt is not None
        and attempt.number == borrow.attempt
        and attempt.gave_way_to == row.job
    )
    lost = sum(
        receipt.gpu_seconds_lost
        for receipt in draft.receipts
        if (receipt.job, receipt.attempt) == (borrow.job, borrow.attempt)
        and receipt.kind.is_preemption
    )
    return totals.with_borrow(
        borrow,
        draft.now.wall,
        lost=lost if is_taken_back else 0.0,
        is_taken_back=is_taken_back,
    )


def without_sleep(draft: Draft, service: Service, row: ReplicaRow) -> Service:
    """Return the service with the replica awake or over. Its sleep, and the loans that
    have not ended, are added to the sums."""
    sleep = row.sleep
    if sleep is None:
        return service
    totals = service.lent
    if sleep.room_at is None:
        totals = totals.with_sleep(sleep, draft.now.wall)
    for borrow in sleep.borrows:
        totals = _with_ended(draft, totals, row, borrow)
    return replace(service, lent=totals).with_row(replace(row, sleep=None))


def with_wake(service: Service, sleep: ReplicaSleep, now: float) -> Service:
    """Return the service with a measured wake that ends now."""
    assert sleep.wakes_at is not None
    room_at = sleep.room_at if sleep.room_at is not None else sleep.wakes_at
    seconds = max(0.0, now - sleep.wakes_at)
    totals = service.lent.with_wake(
        seconds,
        service.spec.scale.back_within_seconds,
        is_taken_back=bool(sleep.victims),
    )
    wakes = (*service.wakes, max(0.0, now - room_at))[-KEPT_WAKES:]
    return replace(service, lent=totals, wakes=wakes)


# -- what is taken back ----------------------------------------------------------------


def has_room(draft: Draft, row: ReplicaRow, seat: Seat) -> bool:
    """Return whether all that the seat lends is free."""
    return _fits(draft, seat, _others(draft, row, seat.node))


def _fits(draft: Draft, seat: Seat, others: Iterable[Allocation]) -> bool:
    node = draft.node(seat.node)
    if node is None:
        return False
    room = NodeRoom(node, others)
    share = seat.gpu_millis // len(seat.gpus) if seat.gpus else 0
    free = room.free_gpu_millis
    return (
        all(index < len(free) and free[index] >= share for index in seat.gpus)
        and all(
            set(seat.slices) <= set(room.free_slices[index])
            for index in (seat.gpus if seat.slices else ())
        )
        and room.free_cpu_millis >= seat.cpu_millis
    )


def choose_victims(
    draft: Draft, row: ReplicaRow, sleep: ReplicaSleep
) -> list[tuple[Job, Allocation]]:
    """Return the running jobs that must stop so that the replica gets its seats back:
    of those that have started there since it sleeps, the quickest to stop. Jobs that
    are stopping already count as gone."""
    victims: dict[JobId, tuple[Job, Allocation]] = {}
    for seat in sleep.seats:
        lent = lent_part(seat)
        present = [
            allocation
            for allocation in _others(draft, row, seat.node)
            if _is_live(draft, allocation) and allocation.job not in victims
        ]
        candidates = [
            allocation
            for allocation in present
            if _has_started_since(draft, allocation, sleep)
        ]
        candidates.sort(key=lambda one: _stop_order(draft, lent, one))
        chosen: list[Allocation] = []
        while candidates and not _fits(draft, lent, _without(present, chosen)):
            chosen.append(candidates.pop(0))
        for allocation in list(chosen):  # those that are not necessary after all
            rest = [other for other in chosen if other is not allocation]
            if _fits(draft, lent, _without(present, rest)):
                chosen = rest
        for allocation in chosen:
            job = draft.job(allocation.job)
            if job is not None:
                victims[job.id] = (job, allocation)
    return list(victims.values())


def _has_started_since(
    draft: Draft, allocation: Allocation, sleep: ReplicaSleep
) -> bool:
    """Return whether the attempt of the allocation was placed after the replica fell
    asleep. The allocation of another replica that has woken is newer than its
    attempt."""
    attempt = draft.attempt(allocation.job)
    return (
        attempt is not None
        and sleep.asleep_at is not None
        and attempt.number == allocation.attempt
        and attempt.placed_at >= sleep.asleep_at
    )


def _is_live(draft: Draft, allocation: Allocation) -> bool:
    """Return whether the allocation stays unless its job is stopped."""
    job = draft.job(allocation.job)
    return job is not None and job.state.is_live and job.attempt == allocation.attempt


def _stop_order(
    draft: Draft, seat: Seat, allocation: Allocation
) -> tuple[bool, float, JobId]:
    """Return the key by which jobs are stopped: first those on the GPUs of the seat,
    the quickest of them first."""
    job = draft.job(allocation.job)
    seconds = stop_seconds(draft, job) if job is not None else 0.0
    return not _shared_millis(seat, allocation.seat), seconds, allocation.job


def _without(
    allocations: Sequence[Allocation], gone: Sequence[Allocation]
) -> list[Allocation]:
    return [
        allocation
        for allocation in allocations
        if all(allocation is not other for other in gone)
    ]


def stop_victims(
    draft: Draft, row: ReplicaRow, victims: Iterable[tuple[Job, Allocation]]
) -> tuple[Victim, ...]:
    """Ask these jobs to stop at once. Return them as victims of the replica."""
    stopped: list[Victim] = []
    for job, _ in victims:
        attempt = draft.attempt(job.id)
        assert attempt is not None
        reason = (
            f"preempted for {name_of(draft, row.job)}, which takes back the GPUs that "
            "it had lent"
        )
        moved = draft.move(
            job, JobEvent.PREEMPTED, reason=reason, code=ReasonCode.PREEMPTED
        )
        draft.put(replace(moved, why=StopWhy.PREEMPT))
        draft.put_attempt(replace(attempt, gave_way_to=row.job))
        stopped.append(
            Victim(
                job=job.id,
                attempt=job.attempt,
                due_at=draft.now.wall,
                why=PreemptWhy.LENT,
                gpu_millis=sum(seat.gpu_millis for seat in attempt.seats),
            )
        )
    return tuple(stopped)
