"""The time of an attempt, divided into the spans that the ledger distinguishes (0055)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from corral.domain.attempt import Attempt, Save, Seat
from corral.domain.ids import AttemptNumber
from corral.domain.job import Job
from corral.domain.ledger import UsageAmounts, UsageRecord, by_day
from corral.domain.receipt import Receipt, ReceiptKind
from corral.domain.units import MILLIS_PER_GPU
from corral.insight.attempt_phases import AttemptPhases, phases_of

LOST_TO: Final[Mapping[ReceiptKind, str]] = {  # by the kind of the victim's receipt
    ReceiptKind.FAILURE: "failed_gpu_seconds",
    ReceiptKind.PREEMPTION: "preempted_gpu_seconds",
    ReceiptKind.RELOCATION: "preempted_gpu_seconds",
    ReceiptKind.SHRINK: "preempted_gpu_seconds",
    ReceiptKind.DRAIN: "preempted_gpu_seconds",
    ReceiptKind.SUSPENSION: "stopped_gpu_seconds",
    ReceiptKind.TIMEOUT: "stopped_gpu_seconds",
    ReceiptKind.REQUEUE: "stopped_gpu_seconds",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpan:
    """A part of the time of an attempt, such as its start. `amount` names the amount in
    the ledger to which the part is added, "" for none; `share` is how much of each
    second is added."""

    amount: str
    since: float
    until: float
    share: float = 1.0


def gpus_of(
    seat: Seat, types: tuple[str, ...], otherwise: str = ""
) -> dict[str, float]:
    """Return GPU type -> number of GPUs of the seat, with fractions for shared GPUs.

    Args:
        types: types of the node's GPUs by index; a GPU that the node no longer has
            counts as `otherwise`.
    """
    gpu_seconds: dict[str, float] = {}
    if not seat.gpus:
        return gpu_seconds
    gpu_fraction = seat.gpu_millis / MILLIS_PER_GPU / len(seat.gpus)
    for index in seat.gpus:
        kind = types[index] if index < len(types) else otherwise
        gpu_seconds[kind] = gpu_seconds.get(kind, 0.0) + gpu_fraction
    return gpu_seconds


def spans(
    attempt: Attempt,
    saves: Iterable[Save],
    *,
    until: float,
    receipt: Receipt | None = None,
    reports_steps: bool = False,
) -> Iterator[AttemptSpan]:
    """Yield the spans of an attempt from its placement to its end, or to `until` if it
    still runs (wall clock). `receipt` is the cost of the attempt's end, if any.
    `reports_steps`: attempts of its job have reported steps.

    For an attempt with saves it is known which steps were kept. For any other attempt,
    all time was useful unless a receipt reports a loss. The seconds that saves took are
    subtracted evenly from the kept time. Steps after the loss became not a number are
    useless and count as failed. A span without an amount is of no named category.
    """
    phases = phases_of(
        attempt, saves, until=until, receipt=receipt, reports_steps=reports_steps
    )
    lost_to = LOST_TO[receipt.kind] if receipt is not None else "failed_gpu_seconds"
    yield from phase_spans(phases, attempt.nan_at, lost_to)


def phase_spans(
    phases: AttemptPhases, nan_at: float | None, lost_to: str
) -> Iterator[AttemptSpan]:
    """Yield the spans of these phases, in the order of time. Spans of one time have
    shares that add up to 1.

    Args:
        nan_at: Since when the steps were useless; None: they were not.
        lost_to: The amount to which lost steps are added.
    """
    begun, kept_until = phases.stepped_from, phases.kept_until
    numbers = kept_until if nan_at is None else min(kept_until, max(begun, nan_at))
    working = 1.0 - phases.save_share - phases.hung_share
    rows = (
        ("starting_gpu_seconds", phases.placed_at, phases.restored_from, 1.0),
        ("restoring_gpu_seconds", phases.restored_from, begun, 1.0),
        ("useful_gpu_seconds", begun, numbers, working),
        ("failed_gpu_seconds", numbers, kept_until, working),
        ("saving_gpu_seconds", begun, kept_until, phases.save_share),
        ("hung_gpu_seconds", begun, kept_until, phases.hung_share),
        (
            "" if phases.is_stopping else lost_to,
            kept_until,
            phases.stalled_from,
            1.0,
        ),
        ("hung_gpu_seconds", phases.stalled_from, phases.ended_at, 1.0),
    )
    for amount, since, until, share in rows:
        if until > since and share > 0:
            yield AttemptSpan(amount=amount, since=since, until=until, share=share)


def of_life(
    job: Job, attempt: Attempt, gpus: Mapping[str, float], parts: Iterable[AttemptSpan]
) -> Iterator[UsageRecord]:
    """Yield the ledger's rows for the spans `parts` of the attempt. `gpus`: GPU type ->
    number of GPUs of the whole gang."""
    for attempt_span in parts:
        for day, seconds in by_day(attempt_span.since, attempt_span.until):
            for kind, count in gpus.items():
                amount = seconds * attempt_span.share * count
                if amount > 0 and attempt_span.amount:
                    yield row(
                        job,
                        attempt.number,
                        day,
                        kind,
                        UsageAmounts(**{attempt_span.amount: amount}),
                    )


def row(
    job: Job, attempt: int, day: int, gpu_type: str, amounts: UsageAmounts
) -> UsageRecord:
    return UsageRecord(
        day=day,
        queue=job.spec.queue,
        user=job.owner,
        gpu_type=gpu_type,
        amounts=amounts,
        job=job.id,
        attempt=AttemptNumber(attempt),
        name=job.spec.name,
    )
