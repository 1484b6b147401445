"""Borrowed GPU time of queues. It is stored as rows of the world, because a head's
memory may be lost."""

from collections.abc import Iterable

from corral.domain.ids import QueueName
from corral.domain.job import Job
from corral.reconcile.changeset import Draft
from corral.reconcile.usage import types_of
from corral.schedule import Placed
from corral.schedule.quota.borrowing import Claim, counted
from corral.schedule.quota.limits import holding_of


def count_debts(
    draft: Draft, claims: dict[QueueName, Claim], placed: Iterable[Placed]
) -> None:
    """Record the debt of each queue whose debt now changes at another rate. `claims`:
    what each queue held and requested before the gangs in `placed` were placed."""
    for placed_gang in placed if claims else ():
        job = draft.job(placed_gang.job)
        if job is not None and not job.spec.preemptible:
            _grant_claims(draft, claims, job, placed_gang)
    half_life_seconds = draft.tree.half_life_seconds
    for debt in counted(draft.debts_now(), claims, draft.now.wall, half_life_seconds):
        draft.debts[debt.queue] = debt


def _grant_claims(
    draft: Draft, claims: dict[QueueName, Claim], job: Job, placed: Placed
) -> None:
    holding = holding_of(job.spec.queue, job.owner, placed.seats, types_of(draft))
    millis = sum(millis for _, millis in holding.gpu_millis)
    for queue in draft.tree.path(job.spec.queue):
        if claim := claims.get(queue.name):
            claims[queue.name] = claim.granted(millis)
