"""Reports of nodes, and nodes that stop reporting."""

from dataclasses import replace

from corral.domain.attempt import Allocation, Attempt, SeatState
from corral.domain.cause import Cause
from corral.domain.event_kind import KIND_OF_LIVENESS, EventKind
from corral.domain.failure_class import FailureKind
from corral.domain.ids import JobId, NodeId
from corral.domain.job import Disconnect, Job
from corral.domain.job_states import JobEvent, JobState
from corral.domain.node import Liveness, Node
from corral.domain.observed_state import NodeFacts
from corral.domain.reason_code import ReasonCode
from corral.health.liveness import BOUND_SECONDS, Verdict, judge
from corral.health.node_diagnosis import booted
from corral.reconcile.attempts import blame
from corral.reconcile.cache.by_node import AllocationsByNode
from corral.reconcile.changeset import Draft
from corral.reconcile.node_signals import take_signals
from corral.reconcile.seat_reports import with_beats

SELF_STOP_MARGIN_SECONDS = 5.0
MOST_LOST_JOBS = 100  # that are named of a node


def see_nodes(draft: Draft) -> set[JobId]:
    """Apply the nodes' reports (inventory, boot) and the verdicts on whether they are
    alive. Return the affected jobs."""
    touched: set[JobId] = set()
    allocations_by_node = AllocationsByNode(draft)
    unheard = draft.facts.unheard
    for heard in draft.facts.nodes.values():
        if heard.node in unheard:
            continue  # no store can hold what it says of itself
        if _take_in(draft, heard):
            touched |= _release_allocations(
                draft,
                heard.node,
                f"node {heard.node} restarted",
                allocations_by_node,
                FailureKind.NODE_REBOOTED,
            )
        if heard.signals:
            take_signals(draft, heard)
    verdicts = judge(draft.all_nodes(), draft.facts, draft.now.serving)
    draft.frozen = {id for id, verdict in verdicts.items() if verdict.frozen}
    for id, verdict in verdicts.items():
        touched |= _apply_verdict(draft, id, verdict, allocations_by_node)
    return touched


def _take_in(draft: Draft, heard: NodeFacts) -> bool:
    """Update a node from its report. Return True if the node has booted again, after
    which everything that ran on it is gone; else False."""
    known_node = draft.node(heard.node)
    if known_node is not None and _says_the_same(heard, known_node):
        return False
    if known_node is None:
        draft.tell(EventKind.NODE_JOINED, f"node {heard.node} joined", node=heard.node)
        known_node = Node(id=heard.node, since=draft.now.wall)
    rebooted = known_node.boot not in ("", heard.boot)
    conditions = (
        booted(known_node.conditions, draft.now.wall)
        if rebooted
        else known_node.conditions
    )
    draft.nodes[heard.node] = replace(
        known_node,
        boot=heard.boot,
        inventory=heard.inventory,
        address=heard.address,
        conditions=conditions,
    )
    if rebooted:
        draft.tell(
            EventKind.NODE_REBOOTED, f"node {heard.node} restarted", node=heard.node
        )
    return rebooted


def _says_the_same(heard: NodeFacts, old: Node) -> bool:
    """Return whether the report brings no change to the known node. The inventories are
    first compared as objects, because they are long and there may be a thousand nodes.
    """
    has_same_inventory = (
        heard.inventory is old.inventory or heard.inventory == old.inventory
    )
    return has_same_inventory and (heard.boot, heard.address) == (old.boot, old.address)


def _apply_verdict(
    draft: Draft, id: NodeId, verdict: Verdict, held: AllocationsByNode
) -> set[JobId]:
    node = draft.node(id)
    assert node is not None
    touched: set[JobId] = set()
    if node.said_dead and verdict.liveness != Liveness.DEAD:
        node = draft.nodes[id] = replace(node, said_dead="")  # heartbeats arrive again
    if node.liveness != verdict.liveness:
        node = replace(
            node, liveness=verdict.liveness, since=draft.now.wall, why=verdict.why
        )
        if verdict.liveness == Liveness.ALIVE:
            node = replace(node, lost_jobs=())
        draft.nodes[id] = node
        draft.tell(
            KIND_OF_LIVENESS[verdict.liveness], f"node {id}: {verdict.why}", node=id
        )
    if verdict.liveness == Liveness.DEAD:
        touched |= _release_allocations(draft, id, verdict.why, held)
    elif verdict.past_bound:
        touched |= _replace_silent_work(draft, id, verdict, held)
    if touched:
        now = draft.node(id) or node
        lost_jobs = sorted({*now.lost_jobs, *touched})[:MOST_LOST_JOBS]
        draft.nodes[id] = replace(now, lost_jobs=tuple(lost_jobs))
    return touched


def _release_allocations(
    draft: Draft,
    node: NodeId,
    proof: str,
    held: AllocationsByNode,
    failure: FailureKind = FailureKind.NODE_LOST,
) -> set[JobId]:
    """Release all allocations of a node that is proven to run nothing any more: its
    GPUs become free, and its jobs recover. Return the jobs."""
    touched: set[JobId] = set()
    for allocation in held.take(node):
        draft.seat_to(allocation, SeatState.RELEASED)
        _recover_lost_job(draft, allocation, proof, failure)
        touched.add(allocation.job)
    return touched


def _replace_silent_work(
    draft: Draft, node: NodeId, verdict: Verdict, held: AllocationsByNode
) -> set[JobId]:
    """Let jobs recover elsewhere whose node has been silent beyond its time limit,
    where the job allows it. Return the affected jobs."""
    touched: set[JobId] = set()
    for allocation in held.take(node):
        job = draft.job(allocation.job)
        if job is None or allocation.state == SeatState.UNREACHABLE:
            continue
        if _may_replace(job, verdict) and not _others_step_on(draft, job, verdict):
            draft.seat_to(allocation, SeatState.UNREACHABLE)
            _recover_lost_job(
                draft,
                allocation,
                f"node {node} has not answered for {verdict.silent_seconds:.0f} s",
            )
            touched.add(job.id)
    return touched


def _may_replace(job: Job, verdict: Verdict) -> bool:
    if job.spec.when_silent == Disconnect.REPLACE:
        return verdict.past_bound
    if job.spec.self_stop_seconds is None:
        return False
    stopped = (
        job.spec.self_stop_seconds + job.spec.grace_seconds + SELF_STOP_MARGIN_SECONDS
    )
    return verdict.past_bound and verdict.counted_seconds > stopped


def _others_step_on(draft: Draft, job: Job, verdict: Verdict) -> bool:
    """Return whether other ranks of the gang still report new steps: a synchronous gang
    is then alive, including its ranks on the silent node."""
    stepped = draft.facts.stepped.get((job.id, job.attempt))
    if job.state != JobState.RUNNING or stepped is None:
        return False
    went_silent = draft.now.serving - verdict.silent_seconds
    return stepped > went_silent + 1.0 and draft.now.serving - stepped < BOUND_SECONDS


def _recover_lost_job(
    draft: Draft,
    allocation: Allocation,
    why: str,
    failure: FailureKind = FailureKind.NODE_LOST,
) -> None:
    """Blame the node for the end of the attempt, and let the job recover. Nothing
    happens if the allocation is not of the job's newest attempt."""
    job = draft.job(allocation.job)
    attempt = draft.attempt(allocation.job)
    if job is None or attempt is None or attempt.number != allocation.attempt:
        return
    node = allocation.seat.node
    _keep_step(draft, attempt, node)
    if job.state in (JobState.STARTING, JobState.RUNNING, JobState.RECOVERING):
        culprit = f"node {node}"
        blame(
            draft,
            attempt,
            cause=Cause.INFRA,
            culprit=culprit,
            evidence=why,
            node=node,
            failure=failure,
        )
    if job.state.is_live:
        draft.move(
            job, JobEvent.NODE_LOST, reason=why, code=ReasonCode.NODE_LOST, at_node=node
        )


def _keep_step(draft: Draft, attempt: Attempt, node: NodeId) -> None:
    """Keep the last step that the node reported for the attempt, because the receipt
    counts lost steps from it."""
    heard = draft.facts.nodes.get(node)
    key = (attempt.job, attempt.number)
    for attempt_report in heard.seen if heard is not None else ():
        if (
            attempt_report.key == key
            and attempt_report.progress is not None
            and key[0] not in draft.facts.unrecordable
        ):
            draft.put_attempt(with_beats(attempt, [attempt_report.progress]))
