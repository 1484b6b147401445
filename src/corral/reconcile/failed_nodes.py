"""Nodes on which attempts failed: which of them a job avoids, and which have faults."""

from dataclasses import replace
from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.cause import Cause
from corral.domain.job import Job
from corral.reconcile.changeset import Draft

MOST_KEPT: Final = 8  # failures that are remembered of a node, and nodes of a job


def avoid_failed_node(job: Job, attempt: Attempt) -> Job:
    """Return the job with the node of the failure added to the nodes it avoids. This
    applies even to failures by the job's own fault, because the node may be the cause
    after all."""
    if attempt.failed_on is None:
        return job
    other_nodes = tuple(
        node_id for node_id in job.failed_on if node_id != attempt.failed_on
    )
    return replace(job, failed_on=(*other_nodes, attempt.failed_on)[-MOST_KEPT:])


def count_node_fault(draft: Draft, attempt: Attempt) -> None:
    """Record a failure on the node that caused a fault of the cluster, so that all jobs
    use this node last. A fault that only a job's own ranks report is no proof against a
    node: statistics over users decide that."""
    node = draft.node(attempt.failed_on) if attempt.failed_on is not None else None
    if node is not None and attempt.cause == Cause.INFRA and not attempt.is_claim:
        failed_at = (*node.failed_at, attempt.ended_at or draft.now.wall)[-MOST_KEPT:]
        draft.nodes[node.id] = replace(node, failed_at=failed_at)
