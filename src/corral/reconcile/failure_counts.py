"""Counts of ended attempts and failures by node and user. Nodes with unusually many
failures are suspected."""

from dataclasses import replace

from corral.domain.attempt import Attempt
from corral.domain.event_kind import EventKind
from corral.domain.failure_record import NodeRecord
from corral.domain.job import Job
from corral.domain.node import Node
from corral.domain.node_signal import Signal, SignalKind
from corral.health.health_rules import HealthRules
from corral.health.lemon_nodes import Suspicion, UserFailureRates, suspicion_of
from corral.health.node_diagnosis import Noticed, judge_conditions
from corral.reconcile.changeset import Draft


def count_end(draft: Draft, job: Job, attempt: Attempt, *, failed: bool) -> None:
    """Count one more ended attempt on each of its nodes, and its failure on the node
    that failed. If a job fails on the same node again, the failure is not counted
    again."""
    for id in dict.fromkeys(attempt.nodes):
        node = draft.node(id)
        if node is not None:
            is_new_failure = (
                failed and id == attempt.failed_on and id not in job.failed_on
            )
            record = node.record.after(
                job.owner, failed=is_new_failure, now=draft.now.wall
            )
            draft.nodes[id] = replace(node, record=record)


def find_lemons(draft: Draft, rules: HealthRules) -> None:
    """Suspect those nodes on which a job has failed in this pass, and whose failures
    are now unusually many."""
    nodes_by_node = draft.world.nodes
    failed = [
        node
        for id, node in draft.nodes.items()
        if id in nodes_by_node
        and node.record.failures > nodes_by_node[id].record.failures
    ]
    if not failed:
        return
    fleet = UserFailureRates(draft.all_nodes())
    for node in failed:
        suspicion = suspicion_of(node.record, fleet)
        if suspicion is not None:
            _blame_node(draft, node, suspicion, rules)


def _blame_node(draft: Draft, node: Node, found: Suspicion, rules: HealthRules) -> None:
    now = draft.now.wall
    signal = Signal(number=0, at=now, kind=SignalKind.LEMON, text=found.text)
    conditions, _ = judge_conditions(
        node.conditions, [Noticed(signal=signal)], now, rules, lambda _: ""
    )
    draft.nodes[node.id] = replace(node, conditions=conditions)
    draft.tell(
        EventKind.LEMON,
        f"node {node.id} is suspected of causing failures: {found.text}",
        node=node.id,
    )


def forget_lemon(before: Node, node: Node) -> Node:
    """Reset the failure record of a node that was a lemon `before` and is not any more.
    Return the node."""
    has_been_lemon = any(
        condition.kind == SignalKind.LEMON and condition.is_live
        for condition in before.conditions
    )
    still = any(
        condition.kind == SignalKind.LEMON and condition.is_live
        for condition in node.conditions
    )
    return replace(node, record=NodeRecord()) if has_been_lemon and not still else node
