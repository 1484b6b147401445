"""Restarts in place of which it is open who pays: the user, or the cluster if a node
reports a fault within a moment (0058, 0167)."""

from collections.abc import Iterator
from dataclasses import replace

from corral.domain.attempt import Attempt
from corral.domain.cause import Cause
from corral.domain.event_kind import EventKind
from corral.domain.failure_class import FailureKind
from corral.domain.job import Job
from corral.domain.job_states import ON_NODES, JobEvent
from corral.domain.node import Node
from corral.domain.node_fault import NodeCondition
from corral.domain.reason_code import ReasonCode
from corral.domain.unpaid_restart import UnpaidRestart
from corral.reconcile.attempts import blame
from corral.reconcile.await_node_faults import SETTLES_SECONDS, explains
from corral.reconcile.changeset import Draft
from corral.reconcile.failed_nodes import avoid_failed_node, count_node_fault
from corral.reconcile.failure_counts import count_end
from corral.reconcile.node_fault_causes import culprit_of, explained


def see_unpaid(draft: Draft, job: Job) -> None:
    """Charge the newest restart in place of the job once it is clear who pays."""
    unpaid = job.unpaid
    if unpaid is None:
        return
    attempt = explained(draft, unpaid.attempt)
    if attempt.cause is Cause.INFRA:
        _charge_cluster(draft, job, unpaid, attempt)
    elif not 0 <= draft.now.wall - unpaid.since < SETTLES_SECONDS:
        charge_user(draft, job)


def charge_user(draft: Draft, job: Job) -> Job:
    """Charge the user for an unpaid restart of the job, because no fault of a node
    explains it. Return the job. Nothing happens if there is no unpaid restart."""
    unpaid = job.unpaid
    if unpaid is None:
        return job
    count_end(draft, job, unpaid.attempt, failed=True)
    return draft.put(
        replace(
            avoid_failed_node(job, unpaid.attempt),
            unpaid=None,
            user_retries=job.user_retries + 1,
        )
    )


def explain_unpaid(draft: Draft, node: Node, condition: NodeCondition) -> Iterator[Job]:
    """Charge the cluster for each unpaid restart that this fault of a node explains.
    Yield the jobs."""
    for job in list(draft.in_states(*ON_NODES)):
        unpaid = job.unpaid
        if unpaid is None or not explains(condition, node.id, unpaid.attempt):
            continue
        is_gpu = condition.gpu is not None
        attempt = replace(
            unpaid.attempt,
            cause=Cause.INFRA,
            failure=FailureKind.GPU_FAULT if is_gpu else FailureKind.CLUSTER,
            culprit=culprit_of(node, condition),
            evidence=condition.text,
            failed_on=node.id,
            quote="",
            failed_at="",
            next_step=None,
        )
        _charge_cluster(draft, job, unpaid, attempt)
        yield job


def _charge_cluster(
    draft: Draft, job: Job, unpaid: UnpaidRestart, attempt: Attempt
) -> None:
    """Record the node's fault as the cause of the failed attempt, and let the job leave
    the node. The end of the present attempt pays for both, as they have one cause."""
    draft.put_ended(attempt)
    draft.receipts.append(
        replace(
            unpaid.receipt,
            cause=attempt.cause,
            culprit=attempt.culprit,
            evidence=attempt.evidence,
        )
    )
    reason = f"{attempt.culprit}: {attempt.evidence}"
    text = (
        f"{job.spec.name}: {reason}; this ended the attempt, not "
        f"{unpaid.attempt.culprit} ({unpaid.attempt.evidence}), and counts as a fault of "
        "the cluster"
    )
    draft.tell(
        EventKind.FAULT,
        text,
        job=job.id,
        node=attempt.failed_on,
        attempt=attempt.number,
    )
    job = draft.put(replace(job, unpaid=None))
    newest = draft.attempt(job.id)
    if newest is not None and job.state.is_live:
        blame(
            draft,
            newest,
            cause=Cause.INFRA,
            culprit=attempt.culprit,
            evidence=attempt.evidence,
            node=attempt.failed_on,
            failure=attempt.failure or FailureKind.CLUSTER,
        )
        code = ReasonCode.NODE_FAULT
        draft.move(job, JobEvent.RANKS_FAILED, reason=reason, code=code)
    elif newest is None or newest.failed_on != attempt.failed_on:
        count_node_fault(draft, attempt)
        infra_retries = min(job.infra_retries + 1, job.spec.retry.infra)
        draft.put(replace(avoid_failed_node(job, attempt), infra_retries=infra_retries))
