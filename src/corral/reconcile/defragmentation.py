"""Jobs that may be relocated now, the budget for relocations, and their recent costs."""

from collections.abc import Callable, Iterator

from corral.domain.attempt import Attempt, SeatState
from corral.domain.ids import QueueName
from corral.domain.job import Job
from corral.domain.job_states import LEAVING, JobState
from corral.domain.receipt import Receipt, ReceiptKind
from corral.domain.relocation import RelocationRule, spent_gpu_seconds
from corral.domain.resources import Shape
from corral.domain.units import HOUR_SECONDS, MILLIS_PER_GPU
from corral.domain.usage import PreemptWhy
from corral.reconcile.attained_service import restart_seconds, unsaved_seconds
from corral.reconcile.changeset import Draft
from corral.reconcile.preemption.reservations import running_gang, standing_reservations
from corral.reconcile.preemption.texts import min_runtime_left_seconds
from corral.schedule.defragment import Movable, Movables
from corral.schedule.waiting import Waiting


def movables_of(
    draft: Draft,
    rule: RelocationRule,
    over: frozenset[QueueName],
    as_gang: Callable[[Job], Waiting],
) -> Movables:
    """Return all running jobs that save, are past their minimum run time, and were not
    moved recently, with the remaining budget for relocations.

    The list of jobs is empty while a job is on the way to its new place, because the
    cost of that move is not known yet. `over`: queues whose budget is spent.
    """
    receipts = list(_relocations(draft))
    budget = rule.gpu_hours * HOUR_SECONDS
    budget_left = budget - spent_gpu_seconds(receipts, draft.now.wall)
    gangs: list[Movable] = []
    if not _is_somebody_on_the_way(draft):
        pause_start = draft.now.wall - rule.pause_seconds
        spared = {receipt.job for receipt in receipts if receipt.seen_at > pause_start}
        spared |= {
            victim.job
            for reservation in standing_reservations(draft)
            for victim in reservation.victims
        }
        jobs = (
            job for job in draft.in_states(JobState.RUNNING) if job.id not in spared
        )
        in_order = sorted(
            jobs, key=lambda job: (job.submitted, job.spec.array_index or 0)
        )
        movables = (_build_movable(draft, job, over, as_gang) for job in in_order)
        gangs = [movable for movable in movables if movable is not None]
    return Movables(
        gangs=gangs, budget_gpu_seconds=budget, left_gpu_seconds=budget_left
    )


def _relocations(draft: Draft) -> Iterator[Receipt]:
    yield from draft.world.relocations.values()
    yield from (
        receipt for receipt in draft.receipts if receipt.kind == ReceiptKind.RELOCATION
    )


def _is_somebody_on_the_way(draft: Draft) -> bool:
    for standing_reservation in standing_reservations(draft):
        moves = any(
            victim.why == PreemptWhy.ROOM for victim in standing_reservation.victims
        )
        if standing_reservation.moved_for is not None or (
            moves and standing_reservation.latest_start is None
        ):
            return True
    attempts = (draft.attempt(job.id) for job in draft.in_states(*LEAVING))
    return any(attempt is not None and attempt.relocated for attempt in attempts)


def _build_movable(
    draft: Draft,
    job: Job,
    over: frozenset[QueueName],
    as_gang: Callable[[Job], Waiting],
) -> Movable | None:
    attempt = draft.attempt(job.id)
    if attempt is None or not _may_move(draft, job, attempt):
        return None
    shape = _shape_of(job, attempt)
    if shape is None:
        return None
    running = running_gang(draft, job, attempt, over, stopping=False)
    gpus = running.gpu_millis / MILLIS_PER_GPU
    seconds = (
        unsaved_seconds(draft, attempt)
        + job.spec.grace_seconds
        + restart_seconds(attempt)
    )
    return Movable(
        running=running, gang=as_gang(job), shape=shape, cost_gpu_seconds=gpus * seconds
    )


def _may_move(draft: Draft, job: Job, attempt: Attempt) -> bool:
    """Return whether the job may be relocated. It may not if it has nodes exclusively,
    has a protected time on its seats, or belongs to an array with a limit of running
    jobs."""
    spec, seats = job.spec, draft.seats_of(attempt)
    is_whole = len(seats) == len(attempt.seats)
    is_protected = (
        attempt.protected_until is not None and draft.now.wall < attempt.protected_until
    )
    return (
        spec.checkpoint is not None
        and spec.array_limit is None
        and not spec.place.exclusive
        and not is_protected
        and is_whole
        and all(seat.state == SeatState.HELD for seat in seats)
        and min_runtime_left_seconds(draft, job, attempt) <= 0
    )


def _shape_of(job: Job, attempt: Attempt) -> Shape | None:
    """Return the shape of the spec in which the job runs; None if it runs in none of
    the spec's shapes."""
    millis = sum(seat.gpu_millis for seat in attempt.seats)
    alike = (shape for shape in job.spec.shapes if shape.nodes == len(attempt.seats))
    return next((shape for shape in alike if shape.gpu_millis == millis), None)
