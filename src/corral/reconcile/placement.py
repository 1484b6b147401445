"""One scheduling pass: it runs the scheduler, and records the jobs that were placed,
with their nodes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypedDict

from corral.domain.event_kind import EventKind
from corral.domain.ids import JobId, NodeId, QueueName
from corral.domain.job import CheckpointRule, Job, JobSpec
from corral.domain.job_states import ON_NODES, JobEvent, JobState
from corral.domain.node import Node
from corral.domain.observed_state import ExternalPlacing
from corral.domain.placement_constraints import PlaceRule
from corral.domain.queue_policy import Policy
from corral.domain.reason_code import ReasonCode
from corral.domain.run_history import stem_of
from corral.domain.store_url import is_store_url
from corral.domain.units import duration_text
from corral.reconcile.attained_service import restart_seconds
from corral.reconcile.attempt_begin import begin_attempt
from corral.reconcile.borrowing import count_debts
from corral.reconcile.cache.pass_cache import Memo
from corral.reconcile.cache.running_jobs import lent_to, roster_of
from corral.reconcile.cache.waiting_jobs import OfNodes, Queued
from corral.reconcile.changeset import Draft
from corral.reconcile.defragmentation import movables_of
from corral.reconcile.external_placement import chosen_now
from corral.reconcile.latest_end import endings_of, holds_seconds
from corral.reconcile.model_places import QuickNodes
from corral.reconcile.preemption.reservations import (
    kept_reasons,
    reserved_of,
    take_in,
)
from corral.reconcile.promises import promise_reasons, promised_of, take_promises
from corral.reconcile.replica_domains import domain_constraint, preferred_domain
from corral.reconcile.replica_ports import reserve_replica_ports
from corral.reconcile.sizes import allowed_shapes, tell_resize
from corral.reconcile.sleeping_room import lent_seats
from corral.reconcile.stop_time import stop_seconds
from corral.reconcile.usage import judge_budgets, priority_of
from corral.schedule import Groups, Learned, Placed, Reasons, Waiting, decide
from corral.schedule.capacity.node_room import STORE_MARK, covering, mark_of
from corral.schedule.defragment import Movables
from corral.schedule.order.late_jobs import turn_seconds
from corral.schedule.order.priority_key import PriorityKeys
from corral.schedule.order.queue_order import QueueLine, in_order
from corral.schedule.quota.borrowing import claims_of


class Expects(TypedDict, total=False):
    """Values from which a job's run time is predicted: its name without numbers
    (`stem`) and its time limit."""

    stem: str
    limit_seconds: float | None


def place(draft: Draft, memo: Memo, learned: Learned | None) -> Reasons:
    """Place the waiting jobs that fit, and return the reason why each other job still
    waits."""
    memo.look(draft)
    spent_queues = judge_budgets(draft, memo.held)
    if draft.facts.placing is not None:
        return _take_chosen(draft, memo, draft.facts.placing)
    waiting_gangs = queued_gangs(draft, spent_queues, memo.queued)
    if not waiting_gangs and not draft.tree.below_service:
        return Reasons()
    standing = memo.standing_of(draft, spent_queues)
    claims = claims_of(standing, waiting_gangs)
    decision = decide(
        memo.floor,
        waiting_gangs,
        fleet=memo.fleet,
        now=draft.now.wall,
        running_of_array=_running_per_array(draft),
        standing=standing,
        learned=learned,
        running=lambda: roster_of(draft, memo.live, standing, spent_queues),
        reserved=reserved_of(draft),
        ends=lambda: endings_of(draft, memo.live),
        known=promised_of(draft),
        shares=memo.queued.shares,
        movable=_relocation_source(draft, spent_queues, memo),
        lent=lambda: lent_to(draft, memo.live),
        sleeping=lent_seats(draft),
    )
    for placed in decision.placed:
        _start_job(draft, placed, is_late=placed.job in decision.late_jobs)
    reserve_replica_ports(draft, decision.placed)
    count_debts(draft, claims, decision.placed)
    take_promises(draft, decision)
    take_in(draft, decision)
    return promise_reasons(draft, kept_reasons(draft, decision.reasons()))


def line_of(draft: Draft, memo: Memo, learned: Learned | None) -> Iterator[JobId]:
    """Yield all waiting jobs in the order in which the next pass would try to place
    them. The draft must be discarded afterwards. Nothing is yielded if the engine
    places jobs itself."""
    if draft.facts.placing is not None:
        return
    memo.look(draft)
    spent_queues = judge_budgets(draft, memo.held)
    waiting_gangs = queued_gangs(draft, spent_queues, memo.queued)
    standing = memo.standing_of(draft, spent_queues)
    keys = PriorityKeys(standing.tree, learned)
    runs, now = waiting_gangs.runs(frozenset()), draft.now.wall
    line = QueueLine(runs, standing, keys, now, lambda: lent_to(draft, memo.live))
    yield from (gang.job for gang in in_order(line))


def _take_chosen(draft: Draft, memo: Memo, placing: ExternalPlacing) -> Reasons:
    placed, reasons = chosen_now(placing, draft.in_states(JobState.QUEUED), memo.floor)
    for placed_gang in placed:
        _start_job(draft, placed_gang, is_late=False)
    reserve_replica_ports(draft, placed)
    return Reasons().instead(reasons)


def _relocation_source(
    draft: Draft, over: frozenset[QueueName], memo: Memo
) -> Callable[[], Movables] | None:
    """Return a function that lists the jobs that may be relocated; None if relocation
    is off."""
    rule = draft.tree.relocation
    if rule is None:
        return None
    nodes = memo.queued.of_nodes(draft)
    return lambda: movables_of(
        draft, rule, over, lambda job: waiting_of(draft, job, over, nodes)
    )


def queued_gangs(draft: Draft, over: frozenset[QueueName], queued: Queued) -> Groups:
    """Return all waiting jobs as gangs in the scheduler's terms, in groups."""
    nodes, quick_nodes = queued.of_nodes(draft), QuickNodes(draft)

    def guarded(job: Job) -> Waiting | None:
        """Return the job in the scheduler's terms; None if a bug is met. The bug then
        holds this job only; all others can be placed."""
        try:
            return waiting_of(draft, job, over, nodes, quick_nodes)
        except Exception as error:
            draft.quarantine(job, error)
            return None

    return queued.of(draft, over, guarded)


def waiting_of(
    draft: Draft,
    job: Job,
    over: frozenset[QueueName],
    nodes: OfNodes,
    quick_nodes: QuickNodes | None = None,
) -> Waiting:
    """Return the waiting job in the scheduler's terms. `over`: queues whose budget is
    spent. `quick_nodes`: cache of the pass; None without one."""
    rule, attempt = job.spec.checkpoint, draft.attempt(job.id)
    return Waiting(
        job=job.id,
        shapes=allowed_shapes(draft, job),
        priority=priority_of(draft, job, over),
        order=(job.submitted, job.spec.array_index or 0),
        since=job.since,
        pinned_to=job.pinned_to,
        shared_path=rule.path if rule else None,
        sharing=_storage_of(nodes, rule) if rule else None,
        mark=_mark_of_saves(draft, job),
        array=job.array,
        array_limit=job.spec.array_limit,
        queue=job.spec.queue,
        user=job.owner,
        place=_place_of(draft, job, nodes),
        kin=job.spec.kin,
        avoid=job.failed_on,
        likes=_preferred_nodes(draft, job, quick_nodes),
        spreads=job.spec.replica is not None,
        preemptible=job.spec.preemptible,
        holds_seconds=holds_seconds(job.spec),
        whole_gpus=whole_gpus(draft.all_nodes().values(), job.spec),
        served_seconds=job.served_seconds,
        restart_seconds=restart_seconds(attempt) if attempt is not None else 0.0,
        waited_seconds=job.waited_seconds,
        stop_seconds=stop_seconds(draft, job),
        **_asked_by_order(draft, job),
    )


def _place_of(draft: Draft, job: Job, nodes: OfNodes) -> PlaceRule:
    """Return the job's placement rule, with a constraint that excludes nodes which
    refuse its owner, and one that keeps a replica near to others of its service."""
    rule = job.spec.place
    further = (nodes.refused.get(job.owner), domain_constraint(draft, job))
    added = tuple(constraint for constraint in further if constraint is not None)
    return replace(rule, constraints=(*rule.constraints, *added)) if added else rule


def whole_gpus(nodes: Iterable[Node], spec: JobSpec) -> int:
    """Return the number of GPUs per node that is charged at least to a job with
    exclusive nodes.

    It is the size of the smallest node that suffices, even if the job requests fewer
    GPUs. It is 0 for a job that shares its nodes.
    """
    if not spec.place.exclusive:
        return 0
    min_gpus = min(shape.resources.gpus for shape in spec.shapes)
    sizes = (
        len(node.inventory.gpus) for node in nodes if spec.place.admits(node.labels)
    )
    return min((size for size in sizes if size >= min_gpus), default=0)


def _asked_by_order(draft: Draft, job: Job) -> Expects:
    """Return the values for the expected run time, if the job's queue is ordered by run
    time. Else return nothing, so that gangs of other queues are more alike."""
    if draft.tree.policy_of(job.spec.queue) != Policy.SJF:
        return {}
    return {
        "stem": stem_of(job.spec.name),
        "limit_seconds": job.spec.max_duration_seconds,
    }


def _mark_of_saves(draft: Draft, job: Job) -> str | None:
    """Return the mark that identifies the shared storage with the job's saves; nodes
    with another mark do not have them. None if there is no such storage."""
    attempt, rule = draft.attempt(job.id), job.spec.checkpoint
    if rule is None:
        return None
    if attempt is None or not draft.saves_of(job.id):
        return _mark_of_origin(draft, rule)
    node = draft.node(attempt.seats[0].node)
    return mark_of(node, rule.path) if node is not None else None


def _storage_of(nodes: OfNodes, rule: CheckpointRule) -> str:
    """Return the storage with the job's saves: jobs with the same one fit the same
    nodes."""
    if is_store_url(rule.path):
        return STORE_MARK
    return covering(nodes.shared, rule.path)


def _mark_of_origin(draft: Draft, rule: CheckpointRule) -> str | None:
    """Return the mark that identifies the shared storage with the save the job starts
    from. None if the job's own saves go elsewhere."""
    node = draft.node(rule.origin.node) if rule.origin is not None else None
    if node is None or rule.origin is None:
        return None
    marks = dict(node.inventory.shared)
    is_same = covering(marks, rule.origin.path) == covering(marks, rule.path)
    return mark_of(node, rule.path) if is_same else None


def _preferred_nodes(
    draft: Draft, job: Job, quick_nodes: QuickNodes | None
) -> frozenset[NodeId]:
    """Return the nodes that are preferred among equals: those where the job ran last,
    else those near to the replicas of its revision, else those on which its model is
    there first."""
    last_nodes = _nodes_of_last(draft, job)
    if last_nodes:
        return last_nodes
    near = preferred_domain(draft, job) - set(job.failed_on)
    if job.spec.model is None:
        return near
    quick = QuickNodes(draft) if quick_nodes is None else quick_nodes
    loaded = quick[job.spec.model] - set(job.failed_on)
    return near & loaded or near or loaded


def _nodes_of_last(draft: Draft, job: Job) -> frozenset[NodeId]:
    """Return the nodes where the job ran last without a failure. They are preferred:
    its files are there, and its reads are cached."""
    attempt = draft.attempt(job.id)
    return (
        frozenset(attempt.nodes) - set(job.failed_on)
        if attempt is not None
        else frozenset()
    )


def _running_per_array(draft: Draft) -> Counter[JobId]:
    return Counter(job.array for job in draft.in_states(*ON_NODES) if job.array)


def _start_job(draft: Draft, placed: Placed, *, is_late: bool) -> None:
    job = draft.job(placed.job)
    assert job is not None
    tell_resize(draft, job, len(placed.seats))
    attempt = begin_attempt(
        draft,
        job,
        placed.seats,
        port=placed.port,
        borrowed_gpu_millis=placed.borrowed_millis,
        protected_until=(
            draft.now.wall + turn_seconds(job.served_seconds) if is_late else None
        ),
    )
    pinned_to = _pinned_node(draft, job, placed)
    if (
        pinned_to is not None
        and job.pinned_to is None
        and job.spec.checkpoint is not None
    ):
        path = job.spec.checkpoint.path
        text = (
            f"{job.spec.name} saves to {path}, which other nodes cannot read: from now on "
            f"it runs only on {pinned_to}"
        )
        draft.tell(EventKind.PINNED, text, job=job.id, node=pinned_to)
    seats_text = ", ".join(_seat_text(seat.node, seat.gpus) for seat in placed.seats)
    waited = max(0.0, draft.now.wall - job.since)
    draft.move(
        job,
        JobEvent.PLACED,
        reason=f"on {seats_text} after waiting {duration_text(waited)}",
        code=ReasonCode.PLACED,
        attempt=attempt.number,
        pinned_to=pinned_to,
        waited_seconds=job.waited_seconds + waited,
    )


def _seat_text(node: NodeId, gpus: tuple[int, ...]) -> str:
    return f"{node} (GPU {', '.join(map(str, gpus))})" if gpus else node


def _pinned_node(draft: Draft, job: Job, placed: Placed) -> NodeId | None:
    """Return the node that the job is bound to from now on; None if it is not bound. A
    job whose checkpoint path is not shared is bound to its first node."""
    rule = job.spec.checkpoint
    node = draft.node(placed.seats[0].node)
    if rule is None or node is None or mark_of(node, rule.path) is not None:
        return job.pinned_to
    return node.id
