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

LOST_TO: Final[Mapping[ReceiptKind, str]] = {  # by the kind of the victim's receipt
    ReceiptKind.FAILURE: "failed_gpu_seconds",
    ReceiptKind.PREEMPTION: "preempted_gpu_seconds",
    ReceiptKind.RELOCATION: "preempted_gpu_seconds",
    ReceiptKind.DRAIN: "preempted_gpu_seconds",
    ReceiptKind.SUSPENSION: "stopped_gpu_seconds",
    ReceiptKind.TIMEOUT: "stopped_gpu_seconds",
    ReceiptKind.REQUEUE: "stopped_gpu_seconds",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpan:
    """A part of the time of an attempt, such as its start. `amount` names the amount in
    the ledger to which the part is added; `share` is how much of each second is
    added."""

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
) -> Iterator[AttemptSpan]:
    """Yield the spans of an attempt from its placement to its end, or to `until` if it
    still runs (wall clock). `receipt` is the cost of the attempt's end, if any.

    For an attempt with saves it is known which steps were kept. For any other attempt,
    all time was useful unless a receipt reports a loss. The seconds that saves took are
    subtracted evenly from the kept time. Steps after the loss became not a number are
    useless and count as failed.
    """
    ended_at = min(until, attempt.ended_at if attempt.ended_at is not None else until)
    begun = (
        attempt.first_step_at
        if attempt.first_step_at is not None
        else attempt.running_at
    )
    begun = ended_at if begun is None else min(max(begun, attempt.placed_at), ended_at)
    yield AttemptSpan(
        amount="starting_gpu_seconds", since=attempt.placed_at, until=begun
    )
    lost_seconds = 0.0 if receipt is None else receipt.seconds_lost or 0.0
    kept_until = max(begun, ended_at - lost_seconds)
    numbers = (
        kept_until
        if attempt.nan_at is None
        else min(kept_until, max(begun, attempt.nan_at))
    )
    stalls = sum(save.stall_seconds for save in saves if save.attempt == attempt.number)
    saving = min(1.0, stalls / (kept_until - begun)) if kept_until > begun else 0.0
    yield AttemptSpan(
        amount="useful_gpu_seconds", since=begun, until=numbers, share=1.0 - saving
    )
    yield AttemptSpan(
        amount="failed_gpu_seconds", since=numbers, until=kept_until, share=1.0 - saving
    )
    yield AttemptSpan(
        amount="saving_gpu_seconds", since=begun, until=kept_until, share=saving
    )
    if receipt is not None:
        yield AttemptSpan(
            amount=LOST_TO[receipt.kind], since=kept_until, until=ended_at
        )


def of_life(
    job: Job, attempt: Attempt, gpus: Mapping[str, float], parts: Iterable[AttemptSpan]
) -> Iterator[UsageRecord]:
    """Yield the ledger's rows for the spans `parts` of the attempt. `gpus`: GPU type ->
    number of GPUs of the whole gang."""
    for attempt_span in parts:
        for day, seconds in by_day(attempt_span.since, attempt_span.until):
            for kind, count in gpus.items():
                amount = seconds * attempt_span.share * count
                if amount > 0:
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
