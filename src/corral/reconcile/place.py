"""Ask the scheduler, and write down whom it placed where."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypedDict

from corral.domain.attempt import Allocation, Attempt
from corral.domain.forecast import stem_of
from corral.domain.ids import AttemptNumber, JobId, NodeId, QueueName
from corral.domain.job import Job, JobSpec
from corral.domain.moves import ON_NODES, JobEvent
from corral.domain.node import Node
from corral.domain.queue import Policy
from corral.domain.units import duration_text
from corral.reconcile.draft import Draft
from corral.reconcile.ends import endings_of, holds_seconds
from corral.reconcile.preempt import (
    kept_reasons,
    reserved_of,
    restart_seconds,
    running_of,
    take_in,
)
from corral.reconcile.promises import promise_reasons, promised_of, take_promises
from corral.reconcile.queued import Queued, shared_paths
from corral.reconcile.use import held_now, judge_budgets, priority_of, standing_of
from corral.schedule import Fleet, Groups, Learned, NodeRoom, Placed, Reasons, Waiting, decide
from corral.schedule.elder import protected_until
from corral.schedule.room import covering, mark_of

# Before a node has a record of its own: 419 unexpected interruptions in 54 days on 2,048 nodes of
# 8 GPUs are one in 264 node-days (Llama Team 2024, arXiv:2407.21783, section 3.3.4); smaller sites
# report several times more, so 30 days. It weighs as much as a tenth of a failure.
PRIOR_MTBF_SECONDS: Final = 30 * 86400.0
PRIOR_WEIGHT: Final = 0.1
SUSPECTED_SECONDS: Final = 86400.0  # a node that failed is the last to be taken for so long


class Expects(TypedDict, total=False):
    """How long a job may take, as far as its kin and its user tell."""

    stem: str
    limit_seconds: float | None


def place(draft: Draft, queued: Queued, learned: Learned | None) -> Reasons:
    """Place what fits, and answer with the reason of every job that waits."""
    held = list(held_now(draft))
    over = judge_budgets(draft, held)
    waiting = queued_gangs(draft, over, queued)
    if not waiting:
        return Reasons()
    standing = standing_of(draft, held, over)
    decision = decide(
        rooms_of(draft).values(),
        waiting,
        fleet=Fleet(draft.all_nodes().values()),
        now=draft.now.wall,
        running_of_array=_arrays(draft),
        standing=standing,
        learned=learned,
        running=lambda: running_of(draft, standing, over),
        reserved=reserved_of(draft),
        ends=lambda: endings_of(draft),
        known=promised_of(draft),
        shares=queued.shares,
    )
    for placed in decision.placed:
        _start(draft, placed)
    take_promises(draft, decision)
    take_in(draft, decision)
    return promise_reasons(draft, kept_reasons(draft, decision.reasons()))


def queued_gangs(draft: Draft, over: frozenset[QueueName], queued: Queued) -> Groups:
    """All that wait now, as the scheduler sees them."""
    paths = shared_paths(draft)

    def guarded(job: Job) -> Waiting | None:
        """A bug met on one job holds that job and lets all the others be placed."""
        try:
            return waiting_of(draft, job, over, paths)
        except Exception as error:
            draft.quarantine(job, error)
            return None

    return queued.of(draft, over, guarded)


def rooms_of(draft: Draft) -> dict[NodeId, NodeRoom]:
    """Nodes that take work now, with what is free on them.

    A node that this head has not heard yet takes none: it may be starting anew just now, and would
    lose what is given to it when it says so.
    """
    heard = draft.facts.nodes.keys() - draft.facts.awaited
    nodes = draft.all_nodes()
    rooms = {
        id: NodeRoom(node, suspicion=suspicion_of(node, draft.now.wall))
        for id, node in nodes.items()
        if id in heard and node.takes_work
    }
    for allocation in draft.held():
        room = rooms.get(allocation.seat.node)
        if room is not None:
            _occupy(draft, room, allocation)
    return rooms


def _occupy(draft: Draft, room: NodeRoom, held: Allocation) -> None:
    job = draft.job(held.job)
    kin, apart_from = (job.spec.kin, job.spec.place.apart_from) if job is not None else ("", ())
    room.take(held.seat, kin=kin, apart_from=apart_from)
    if held.port in room.free_ports:
        room.free_ports.remove(held.port)


def waiting_of(
    draft: Draft, job: Job, over: frozenset[QueueName], shared: frozenset[str]
) -> Waiting:
    """The job as the scheduler sees it. `over`: queues whose budget is spent; `shared`: paths that
    nodes share."""
    rule, attempt = job.spec.checkpoint, draft.attempt(job.id)
    return Waiting(
        job=job.id,
        shapes=job.spec.shapes,
        priority=priority_of(draft, job, over),
        order=(job.submitted, job.spec.array_index or 0),
        since=job.since,
        pinned_to=job.pinned_to,
        shared_path=rule.path if rule else None,
        sharing=covering(shared, rule.path) if rule else None,
        mark=_mark_of_saves(draft, job),
        array=job.array,
        array_limit=job.spec.array_limit,
        queue=job.spec.queue,
        user=job.owner,
        place=job.spec.place,
        kin=job.spec.kin,
        avoid=frozenset(job.failed_on),
        likes=_nodes_of_last(draft, job),
        preemptible=job.spec.preemptible,
        holds_seconds=holds_seconds(job.spec),
        whole_gpus=whole_gpus(draft.all_nodes().values(), job.spec),
        served_seconds=job.served_seconds,
        restart_seconds=restart_seconds(attempt) if attempt is not None else 0.0,
        **_asked_by_order(draft, job),
    )


def whole_gpus(nodes: Iterable[Node], spec: JobSpec) -> int:
    """GPUs of the smallest nodes that would do for one that wants nodes for itself: so many of each
    it is charged at the least, whatever it asks for. 0: it shares its nodes."""
    if not spec.place.exclusive:
        return 0
    least = min(shape.resources.gpus for shape in spec.shapes)
    sizes = (len(node.inventory.gpus) for node in nodes if spec.place.admits(node.labels))
    return min((size for size in sizes if size >= least), default=0)


def _asked_by_order(draft: Draft, job: Job) -> Expects:
    """What only a queue that orders by it is told, so that elsewhere gangs are more alike."""
    if draft.tree.policy_of(job.spec.queue) != Policy.SJF:
        return {}
    return {"stem": stem_of(job.spec.name), "limit_seconds": job.spec.max_duration_seconds}


def suspicion_of(node: Node, now: float) -> int:
    """How often the node was to blame for the end of an attempt, of late."""
    return sum(now - at < SUSPECTED_SECONDS for at in node.failed_at)


def _mark_of_saves(draft: Draft, job: Job) -> str | None:
    """The mark of the shared path that the job's saves lie on: they are not elsewhere."""
    attempt = draft.attempt(job.id)
    if attempt is None or job.spec.checkpoint is None or not draft.saves_of(job.id):
        return None
    node = draft.node(attempt.seats[0].node)
    return mark_of(node, job.spec.checkpoint.path) if node is not None else None


def _nodes_of_last(draft: Draft, job: Job) -> frozenset[NodeId]:
    """Where the job ran last and was not failed: its files are there, what it read is cached."""
    attempt = draft.attempt(job.id)
    return frozenset(attempt.nodes) - set(job.failed_on) if attempt is not None else frozenset()


def _arrays(draft: Draft) -> Counter[JobId]:
    return Counter(job.array for job in draft.in_states(*ON_NODES) if job.array)


def _start(draft: Draft, placed: Placed) -> None:
    job = draft.job(placed.job)
    assert job is not None
    number = AttemptNumber(job.attempt + 1)
    saves = draft.saves_of(job.id)
    for index, seat in enumerate(placed.seats):
        allocation = Allocation(
            job=job.id,
            attempt=number,
            seat=seat,
            since=draft.now.wall,
            placed_at=draft.now.wall,
            port=placed.port if index == 0 and placed.port else None,
        )
        draft.allocations[allocation.key] = allocation
    draft.put_attempt(
        Attempt(
            job=job.id,
            number=number,
            seats=placed.seats,
            master_port=placed.port,
            placed_at=draft.now.wall,
            resume_step=saves[-1].step if saves else None,
            node_mtbf_seconds=_mtbf_seconds(draft, job, len(placed.seats)),
            borrowed_gpu_millis=placed.borrowed_millis,
            protected_until=protected_until(job.since, draft.now.wall),
        )
    )
    pinned_to = _pin(draft, job, placed)
    if pinned_to is not None and job.pinned_to is None and job.spec.checkpoint is not None:
        path = job.spec.checkpoint.path
        text = (
            f"{job.spec.name} saves to {path}, which no other node sees: it is bound to {pinned_to}"
        )
        draft.tell("pinned", text, job=job.id, node=pinned_to)
    where = ", ".join(_seat_text(seat.node, seat.gpus) for seat in placed.seats)
    waited = duration_text(max(0.0, draft.now.wall - job.since))
    draft.move(
        job,
        JobEvent.PLACED,
        reason=f"on {where} after waiting {waited}",
        code="Placed",
        attempt=number,
        pinned_to=pinned_to,
    )


def _seat_text(node: NodeId, gpus: tuple[int, ...]) -> str:
    return f"{node} (GPU {', '.join(map(str, gpus))})" if gpus else node


def _pin(draft: Draft, job: Job, placed: Placed) -> NodeId | None:
    """A checkpoint path that is not shared binds the job to the node that it first ran on."""
    rule = job.spec.checkpoint
    node = draft.node(placed.seats[0].node)
    if rule is None or node is None or mark_of(node, rule.path) is not None:
        return job.pinned_to
    return node.id


def _mtbf_seconds(draft: Draft, job: Job, nodes: int) -> float:
    """Mean time between failures of one node: the prior, corrected by this job's own record.

    Gamma-Poisson: (weight * prior + node-seconds run) / (weight + failures).
    """
    ran = nodes * max(0.0, draft.now.wall - job.started_at) if job.started_at is not None else 0.0
    failures = job.infra_retries
    return (PRIOR_WEIGHT * PRIOR_MTBF_SECONDS + ran) / (PRIOR_WEIGHT + failures)
