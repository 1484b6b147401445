"""Records of usage. An allocation is recorded in the commit that releases it, and an
attempt in the commit that concludes it, so that nothing is counted twice or lost,
whatever fails in between."""

from collections.abc import Iterator

from corral.domain.attempt import Attempt
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.receipt import Receipt
from corral.insight.attempt_reliability import reliability_rows
from corral.insight.attempt_spans import LOST_TO, of_life, spans
from corral.insight.open_accounts import gang_gpus, of_allocation
from corral.reconcile.changeset import Draft


def write_down(draft: Draft) -> None:
    """Record the usage of allocations that this draft releases and of attempts that it
    concludes."""
    _charge_allocations(draft)
    for attempt in _concluded(draft):
        job = draft.job(attempt.job)
        assert job is not None
        gpus = gang_gpus(job, attempt, {**draft.world.nodes, **draft.nodes})
        saves = draft.saves_of(job.id)
        receipt = _loss_receipt(draft, attempt)
        time_spans = spans(
            attempt,
            saves,
            until=draft.now.wall,
            receipt=receipt,
            reports_steps=job.best_step >= 0,
        )
        draft.accounts += of_life(job, attempt, gpus, time_spans)
        draft.accounts += reliability_rows(
            job, attempt, saves, gpus, until=draft.now.wall, receipt=receipt
        )


def _charge_allocations(draft: Draft) -> None:
    for key, allocation in draft.allocations.items():
        previous_allocation = draft.world.allocations.get(key)
        job = draft.job(allocation.job)
        if (
            previous_allocation is None
            or previous_allocation.charged
            or not allocation.charged
            or job is None
        ):
            continue
        node = draft.node(allocation.seat.node) or draft.world.nodes.get(
            allocation.seat.node
        )
        draft.accounts += of_allocation(
            job, previous_allocation, node, draft.tree, draft.now.wall
        )


def _concluded(draft: Draft) -> Iterator[Attempt]:
    """Yield the attempts that were on nodes before this draft and have left them, or
    are followed there by another."""
    for id, job in draft.jobs.items():
        previous_job = draft.world.jobs.get(id)
        if (
            previous_job is None
            or not previous_job.state.is_on_nodes
            or (job.state.is_on_nodes and job.attempt == previous_job.attempt)
        ):
            continue
        attempt = _newest_row(draft, id, previous_job.attempt)
        if attempt is not None:
            yield attempt


def _newest_row(draft: Draft, id: JobId, number: AttemptNumber) -> Attempt | None:
    rows = (draft.attempt(id), *reversed(draft.replaced), draft.world.attempts.get(id))
    return next(
        (
            attempt
            for attempt in rows
            if attempt is not None and (attempt.job, attempt.number) == (id, number)
        ),
        None,
    )


def _loss_receipt(draft: Draft, attempt: Attempt) -> Receipt | None:
    """Return the receipt that this draft contains for the attempt, if it records lost
    work; otherwise None."""
    of: tuple[JobId, int] = (attempt.job, attempt.number)
    receipts = (
        receipt for receipt in draft.receipts if (receipt.job, receipt.attempt) == of
    )
    return next((receipt for receipt in receipts if receipt.kind in LOST_TO), None)
