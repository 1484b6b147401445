"""Automatic actions for the health of nodes: avoid, cordon or drain a node, and end
jobs on broken devices. A limit, the breaker, stops too many cordons. All actions are
recorded."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from corral.catalog.fault_codes import family_of
from corral.domain.attempt import Allocation, Attempt
from corral.domain.cause import Cause
from corral.domain.culprits import is_rank
from corral.domain.event_kind import EventKind
from corral.domain.failure_class import FailureKind
from corral.domain.ids import JobId, NodeId
from corral.domain.job import Job
from corral.domain.job_states import JobEvent, JobState
from corral.domain.node import Node
from corral.domain.node_fault import BY_HEALTH, NodeCondition, Restriction
from corral.domain.node_signal import Signal
from corral.domain.reason_code import ReasonCode
from corral.health.cordon_limit import recent_health_cordons
from corral.health.health_rules import HealthRules
from corral.health.node_diagnosis import Noticed, Struck, judge_conditions
from corral.health.repair_commands import mending
from corral.reconcile.attempts import blame
from corral.reconcile.await_node_faults import explains, settling
from corral.reconcile.cache.by_node import AllocationsByNode
from corral.reconcile.changeset import Draft
from corral.reconcile.failure_counts import forget_lemon
from corral.reconcile.latest_end import CLOCKS_SECONDS
from corral.reconcile.node_fault_causes import culprit_of
from corral.reconcile.unpaid_restarts import explain_unpaid

# the reason code of a job that a broken GPU or node has ended


@dataclass(frozen=True, slots=True)
class _Verdict:
    node: Node
    struck: tuple[Struck, ...]

    @property
    def urgency(self) -> tuple[int, int, NodeId]:
        condition = self.node.worst
        remedy = condition.remedy.rank if condition is not None else 0
        return (-self.node.restriction.rank, -remedy, self.node.id)


class _Breaker:
    """Limit of how many nodes may be cordoned automatically within some minutes.
    Without it, a fault of the whole cluster would cordon every node."""

    def __init__(self, draft: Draft, rules: HealthRules) -> None:
        nodes = draft.all_nodes()
        self._left = rules.most(len(nodes)) - recent_health_cordons(
            nodes.values(), draft.now.wall, rules
        )

    def take(self) -> bool:
        """Count one more automatic cordon, and return whether the limit still allows
        it."""
        self._left -= 1
        return self._left >= 0


def see_health(draft: Draft, rules: HealthRules, *, whole: bool) -> set[JobId]:
    """Judge the nodes with new signals, and apply the results. With `whole`, also judge
    nodes with conditions, which change with time. Return the jobs that this ends."""
    draft.trusts_health = rules.mode == "enforce"
    nodes = draft.all_nodes()
    unhealthy = (
        {id for id, node in nodes.items() if node.conditions or node.suspect}
        if whole
        else set()
    )
    verdicts = [
        _judge_node(draft, nodes[id], rules) for id in unhealthy | draft.noticed.keys()
    ]
    if not verdicts:
        return set()
    ended_jobs: set[JobId] = set()
    breaker, allocations_by_node, open_ends = (
        _Breaker(draft, rules),
        AllocationsByNode(draft),
        list(settling(draft)),
    )
    # the worst ask the breaker first
    for verdict in sorted(verdicts, key=lambda one: one.urgency):
        node = _set_restriction(draft, verdict.node, rules, breaker)
        previous_node = nodes[node.id]
        if node is not previous_node:
            draft.nodes[node.id] = node
            draft.is_urgent |= (node.cordoned, node.suspect) != (
                previous_node.cordoned,
                previous_node.suspect,
            )
        if verdict.struck and rules.mode == "enforce" and not node.suspect:
            ended_jobs |= _end_jobs(
                draft, node, verdict.struck, allocations_by_node.take(node.id)
            )
        # Also for a suspect: it affects no job.
        if verdict.struck and rules.mode == "enforce":
            ended_jobs |= _explain_ends(draft, node, verdict.struck, open_ends)
            for strike in verdict.struck:
                restarted = explain_unpaid(draft, node, strike.condition)
                ended_jobs |= {job.id for job in restarted}
    return ended_jobs


def _judge_node(draft: Draft, node: Node, rules: HealthRules) -> _Verdict:
    types = {gpu.index: gpu.type for gpu in node.inventory.gpus}
    noticed_faults = [
        _noticed_from_signal(draft, signal) for signal in draft.noticed.get(node.id, ())
    ]
    conditions, struck = judge_conditions(
        node.conditions,
        noticed_faults,
        draft.now.wall,
        rules,
        lambda gpu: _gpu_family(types, gpu),
    )
    if conditions != node.conditions:
        _record_fault_events(draft, node, conditions)
        node = forget_lemon(node, replace(node, conditions=conditions))
    return _Verdict(node, struck)


def _gpu_family(types: dict[int, str], gpu: int | None) -> str:
    """Return the family of this GPU. If `gpu` is None, return that of the node's GPUs,
    which are of one kind; "" if it is unknown."""
    kind = types.get(gpu) if gpu is not None else next(iter(types.values()), None)
    return family_of(kind) if kind else ""


def _noticed_from_signal(draft: Draft, signal: Signal) -> Noticed:
    jobs = (draft.job(job) for job, _ in signal.attempts)
    return Noticed(
        signal=signal, users=tuple(job.owner for job in jobs if job is not None)
    )


def _record_fault_events(
    draft: Draft, node: Node, conditions: Sequence[NodeCondition]
) -> None:
    """Record events of faults that became worse, and of faults that passed."""
    previous_conditions = {condition.key: condition for condition in node.conditions}
    for condition in conditions:
        old_condition = previous_conditions.get(condition.key)
        if (
            condition.is_live
            and condition.restriction != Restriction.OPEN
            and (
                old_condition is None
                or old_condition.remedy != condition.remedy
                or old_condition.restriction != condition.restriction
            )
        ):
            line = mending(condition, node)
            to_mend = f"; to repair it: {line}" if line else ""
            draft.tell(
                EventKind.CONDITION,
                f"node {node.id}: {condition.says}{to_mend}",
                node=node.id,
            )
        if (
            not condition.is_live
            and old_condition is not None
            and old_condition.is_live
            and old_condition.restriction != Restriction.OPEN
        ):
            text = f"node {node.id}: {condition.where or 'the node'} recovered: {condition.text}"
            draft.tell(EventKind.MENDED, text, node=node.id)


def _set_restriction(
    draft: Draft, node: Node, rules: HealthRules, breaker: _Breaker
) -> Node:
    """Return the node open, suspected, cordoned or drained, as its conditions require
    and as the breaker allows."""
    restriction = node.restriction
    if not restriction.closes:
        return _reopen_node(draft, node)
    if node.cordoned:
        if (
            node.is_cordoned_by_health
            and restriction == Restriction.DRAIN
            and not node.draining
        ):
            draft.tell(
                EventKind.DRAIN,
                f"node {node.id}: drain, because of its health: {_health_reason(node)}",
                node=node.id,
            )
            node = replace(node, draining=True)
        return replace(node, suspect=False) if node.suspect else node
    if node.suspect:
        return node  # a person decides
    if rules.mode == "observe" or not breaker.take():
        outcome_text = (
            "has a fault but is not cordoned automatically (--health observe)"
            if rules.mode == "observe"
            else "has a fault but is not cordoned, as too many nodes just were"
        )
        text = (
            f"node {node.id} {outcome_text}: {_health_reason(node)}; to cordon it: corral "
            "node cordon --suspects"
        )
        draft.tell(EventKind.SUSPECT, text, node=node.id)
        return replace(node, suspect=True)
    draining = restriction == Restriction.DRAIN
    event_kind = EventKind.DRAIN if draining else EventKind.CORDON
    draft.tell(
        event_kind,
        f"node {node.id}: {event_kind}, because of its health: {_health_reason(node)}",
        node=node.id,
    )
    return replace(
        node,
        cordoned=True,
        draining=draining,
        cordoned_by=BY_HEALTH,
        health_cordoned_at=draft.now.wall,
    )


def _reopen_node(draft: Draft, node: Node) -> Node:
    """Return the node reopened if it was closed automatically and no fault restricts it
    any more. What a user has closed stays closed."""
    if node.is_cordoned_by_health:
        draft.tell(
            EventKind.UNCORDON,
            f"node {node.id}: uncordon, because it is healthy again",
            node=node.id,
        )
        return replace(
            node, cordoned=False, draining=False, cordoned_by="", suspect=False
        )
    return replace(node, suspect=False) if node.suspect else node


def _health_reason(node: Node) -> str:
    condition = node.worst
    return condition.says if condition is not None else "it has no known fault"


# -- jobs ----------------------------------------------------------------------------------------


def _end_jobs(
    draft: Draft, node: Node, struck: Iterable[Struck], held: Sequence[Allocation]
) -> set[JobId]:
    """Fail the attempts on the broken devices by the cluster's fault, so that they
    restart elsewhere, and return their jobs. Attempts that had failed before, with the
    user charged, are left to `_explain_ends`."""
    ended_jobs: set[JobId] = set()
    for strike in struck:
        for allocation in (seat for seat in held if _is_on(seat, strike)):
            job, attempt = draft.job(allocation.job), draft.attempt(allocation.job)
            if job is None or attempt is None or attempt.number != allocation.attempt:
                continue
            if attempt.cause == Cause.USER:
                continue
            if job.state in (JobState.STARTING, JobState.RUNNING, JobState.RECOVERING):
                _end_attempt(draft, job, attempt, node, strike.condition)
                ended_jobs.add(job.id)
    draft.is_urgent |= bool(ended_jobs)
    return ended_jobs


def _explain_ends(
    draft: Draft,
    node: Node,
    struck: Iterable[Struck],
    ends: Iterable[tuple[Job, Attempt]],
) -> set[JobId]:
    """Charge the cluster, not the user, for attempts that ended recently because of the
    node's faults (0058). Return their jobs."""
    job_ids: set[JobId] = set()
    for strike in struck:
        for job, attempt in ends:
            # another fault may have explained it by now
            now = draft.attempt(job.id) or attempt
            if explains(strike.condition, node.id, now):
                _end_attempt(draft, job, now, node, strike.condition)
                _tell_why(draft, job, now, node)
                job_ids.add(job.id)
    return job_ids


def _end_attempt(
    draft: Draft, job: Job, attempt: Attempt, node: Node, condition: NodeCondition
) -> None:
    culprit, evidence = culprit_of(node, condition), condition.text
    failure = (
        FailureKind.GPU_FAULT if condition.gpu is not None else FailureKind.CLUSTER
    )
    if attempt.cause == Cause.INFRA and is_rank(attempt.culprit):
        # its words say less
        attempt = draft.put_attempt(replace(attempt, cause=Cause.USER))
    blame(
        draft,
        attempt,
        cause=Cause.INFRA,
        culprit=culprit,
        evidence=evidence,
        node=node.id,
        failure=failure,
        at=attempt.ended_at,
    )
    if job.state != JobState.RECOVERING:
        draft.move(
            job,
            JobEvent.RANKS_FAILED,
            reason=f"{culprit}: {evidence}",
            code=ReasonCode.NODE_FAULT,
        )


def _tell_why(draft: Draft, job: Job, before: Attempt, node: Node) -> None:
    """Record an event: the node's fault ended the attempt, and not what its ranks
    reported."""
    now = draft.attempt(job.id) or before
    text = (
        f"{job.spec.name}: {now.culprit}: {now.evidence}; this ended the attempt, not "
        f"{before.culprit} ({before.evidence}), and counts as a fault of the cluster"
    )
    draft.tell(EventKind.FAULT, text, job=job.id, node=node.id, attempt=before.number)


def _is_on(held: Allocation, struck: Struck) -> bool:
    """Return whether the attempt was on the device when its fault was noticed. The node
    reports which attempts were. For a fault of the whole node, an attempt with GPUs
    that was placed before also counts."""
    condition = struck.condition
    if (held.job, held.attempt) in condition.attempts:
        return True
    early = held.began <= condition.noticed_at + CLOCKS_SECONDS
    return struck.whole_node and bool(held.seat.gpus) and early
