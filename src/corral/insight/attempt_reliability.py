"""Rows of the ledger about an attempt, apart from its phases: the wait before it, its
failure and repair, and its saves (0174)."""

from collections.abc import Iterable, Iterator, Mapping

from corral.domain.attempt import Attempt, Save
from corral.domain.job import Job
from corral.domain.ledger import UsageAmounts, UsageRecord, by_day, day_of
from corral.domain.receipt import Receipt, ReceiptKind
from corral.insight.attempt_phases import has_made_steps
from corral.insight.attempt_spans import row


def reliability_rows(
    job: Job,
    attempt: Attempt,
    saves: Iterable[Save],
    gpus: Mapping[str, float],
    *,
    until: float,
    receipt: Receipt | None = None,
) -> Iterator[UsageRecord]:
    """Yield the rows of an attempt that has ended, or runs at `until` (wall clock).
    Replicas of services have none: they make no steps.

    Args:
        gpus: GPU type -> number of GPUs of the whole gang.
        receipt: The cost of its end, if any.
    """
    if job.spec.replica is not None or not gpus:
        return
    yield from _waiting_rows(job, attempt, gpus)
    ended_at = min(until, until if attempt.ended_at is None else attempt.ended_at)
    count = sum(gpus.values())
    has_failed = receipt is not None and receipt.kind is ReceiptKind.FAILURE
    stepped_at = attempt.first_step_at or (
        attempt.running_at if has_made_steps(attempt) or job.best_step < 0 else None
    )
    repaired = attempt.failed_before_at is not None and stepped_at is not None
    amounts = UsageAmounts(
        placed_seconds=max(0.0, ended_at - attempt.placed_at),
        failures=float(has_failed),
        failed_gpus=count * has_failed,
        saved_gpus=count * sum(save.attempt == attempt.number for save in saves),
        repairs=float(repaired),
        repair_seconds=max(0.0, (stepped_at or 0.0) - (attempt.failed_before_at or 0.0))
        if repaired
        else 0.0,
    )
    kind = max(gpus, key=lambda name: (gpus[name], name))
    yield row(job, attempt.number, day_of(ended_at), kind, amounts)


def _waiting_rows(
    job: Job, attempt: Attempt, gpus: Mapping[str, float]
) -> Iterator[UsageRecord]:
    is_first = attempt.number == 1
    queued_at = job.submitted_at if is_first else attempt.queued_at
    if queued_at is None:
        return
    name = "queued_gpu_seconds" if is_first else "requeued_gpu_seconds"
    for day, seconds in by_day(queued_at, attempt.placed_at):
        for kind, count in gpus.items():
            amounts = UsageAmounts(**{name: seconds * count})
            yield row(job, attempt.number, day, kind, amounts)
