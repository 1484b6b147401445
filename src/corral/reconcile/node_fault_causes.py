"""Explanation of an attempt's end by a fault of the machine, where ranks reported the
end (0064)."""

from dataclasses import replace

from corral.domain.attempt import Attempt
from corral.domain.cause import Cause
from corral.domain.culprits import is_rank
from corral.domain.failure_class import FailureKind
from corral.domain.node import Node
from corral.domain.node_fault import NodeCondition
from corral.health.fault_explanations import Explains, explanation
from corral.reconcile.changeset import Draft


def explained(draft: Draft, attempt: Attempt) -> Attempt:
    """Return the attempt with the machine fault that explains its end. A node must have
    noticed the fault at about the time of the end. The attempt is unchanged if no fault
    explains it."""
    if (
        not draft.trusts_health
        or attempt.cause not in (Cause.USER, Cause.INFRA)
        or not is_rank(attempt.culprit)
    ):
        return attempt
    explained_faults = [
        (node, condition, rule)
        for id in attempt.nodes
        if (node := draft.node(id)) is not None
        for condition in node.conditions
        if (rule := _find_explanation(attempt, node, condition)) is not None
    ]
    if not explained_faults:
        return attempt
    ended_at = attempt.ended_at or 0.0
    node, condition, rule = min(
        explained_faults, key=lambda one: abs(ended_at - one[1].noticed_at)
    )
    if not rule.is_machine:
        return replace(
            attempt, failure=rule.by, next_step=None, evidence=condition.text
        )
    return replace(
        attempt,
        cause=Cause.INFRA,
        failure=rule.by,
        next_step=None,
        culprit=culprit_of(node, condition),
        evidence=condition.text,
        failed_on=node.id,
    )


def culprit_of(node: Node, condition: NodeCondition) -> str:
    return (
        f"{condition.where} of node {node.id}"
        if condition.gpu is not None
        else f"node {node.id}"
    )


def _find_explanation(
    attempt: Attempt, node: Node, condition: NodeCondition
) -> Explains | None:
    """Return the rule by which this fault explains the end; None if it does not. The
    fault must be on the node where the attempt failed, or on a GPU of the attempt."""
    failed = attempt.failure or FailureKind.UNKNOWN
    if attempt.ended_at is None:
        return None
    lead_seconds = attempt.ended_at - condition.noticed_at
    rule = explanation(failed, attempt.exit_code, condition, lead_seconds)
    if rule is None or (node.id != attempt.failed_on and not rule.anywhere):
        return None
    if condition.gpu is None:
        return rule
    seats = (seat for seat in attempt.seats if seat.node == node.id)
    return rule if any(condition.gpu in (seat.gpus or ()) for seat in seats) else None
