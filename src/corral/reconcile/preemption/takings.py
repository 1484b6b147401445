"""Receipts of preemptions. Each receipt of a job names the jobs that were stopped to
make room for it, and what each of them has lost."""

from collections.abc import Sequence
from dataclasses import replace

from corral.domain.cause import Cause
from corral.domain.event_kind import EventKind
from corral.domain.job import Job
from corral.domain.receipt import Receipt, ReceiptKind, Taken, taken_text
from corral.domain.usage import PreemptWhy, Victim
from corral.reconcile.changeset import Draft
from corral.reconcile.preemption.texts import name_of, where_text


def account_of(draft: Draft, victim: Victim) -> Taken:
    """Return the receipt entry for a preempted or moved job: its GPUs and its loss."""
    job = draft.job(victim.job)
    is_moved = victim.why == PreemptWhy.ROOM
    return Taken(
        job=victim.job,
        name=name_of(draft, victim.job),
        queue=job.spec.queue if job is not None else "",
        gpu_millis=victim.gpu_millis,
        moved_to=where_text(victim.to) if is_moved else "",
        loss=victim.loss,
        nodes=victim.given_nodes,
        of_nodes=victim.of_nodes,
    )


def tell_taking(
    draft: Draft, job: Job, victims: Sequence[Victim], needed_millis: int
) -> None:
    """Add the receipt of a job that has got the seats of stopped jobs. It names them,
    and what each of them has lost.

    Args:
        needed_millis: What the job needed, in thousandths of GPUs.
    """
    accounts = tuple(account_of(draft, victim) for victim in victims)
    receipt = Receipt(
        job=job.id,
        attempt=job.attempt,
        kind=ReceiptKind.TAKING,
        cause=Cause.NONE,
        culprit="",
        evidence=taken_text(accounts, needed_millis),
        steps_lost=sum(victim.steps_lost or 0 for victim in victims),
        gpu_seconds_lost=sum(victim.gpu_seconds_lost for victim in victims),
        seen_at=draft.now.wall,
        others=tuple(victim.job for victim in victims),
        taken=accounts,
        needed_gpu_millis=needed_millis,
    )
    draft.receipts.append(receipt)
    attempt = draft.attempt(job.id)
    if attempt is not None and any(victim.gone_at is None for victim in victims):
        draft.put_attempt(replace(attempt, open_receipt=receipt))
    text = f"{job.spec.name}: {receipt.text}"
    draft.tell(EventKind.RECEIPT, text, job=job.id, attempt=job.attempt)


def settle_taking(draft: Draft, lost: Receipt) -> None:
    """Add the loss of a stopped job to the receipt of the job that took its place. This
    is needed if the receipt was written before the end of the stopped job was seen."""
    taker = draft.attempt(lost.others[0]) if lost.others else None
    receipt = taker.open_receipt if taker is not None else None
    if taker is None or receipt is None or lost.job not in receipt.others:
        return
    receipt = receipt.settled(lost)
    draft.receipts.append(receipt)
    is_open = receipt.is_open
    draft.put_attempt(replace(taker, open_receipt=receipt if is_open else None))
