"""Receipts of preemptions. Each receipt of a job names the jobs that were stopped to
make room for it, and what each of them has lost."""

from dataclasses import replace

from corral.domain.receipt import Receipt, Taken
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
    )


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
