"""Texts about what keeps a waiting job from its resources: the jobs that hold them and
the likely first of their ends, nodes that take no work, and resources held by programs
outside Corral."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from corral.domain.ids import JobId, NodeId
from corral.domain.job import Job, JobSpec
from corral.domain.node import Node
from corral.domain.reason_code import ReasonCode
from corral.domain.resources import Inventory
from corral.domain.run_history import ExpectedEnd
from corral.domain.time_point import moment_text
from corral.domain.units import MILLIS_PER_CPU, MILLIS_PER_GPU, gpus_text, size_text
from corral.domain.world import World
from corral.schedule import NodeTypes

MOST_NAMED: Final = 2
MOST_ASKED: Final = 8  # of the largest, when they end
NO_ROOM: Final = frozenset(
    {
        ReasonCode.RESOURCES,
        ReasonCode.PRIORITY,
        ReasonCode.TOPOLOGY,
        ReasonCode.EXCLUSIVE,
    }
)


def holders_text(
    world: World,
    job: Job,
    code: ReasonCode,
    now: float,
    ending_of: Callable[[Job], ExpectedEnd | None],
) -> str:
    """Return a text about the jobs that hold the resources a job waits for.

    For example: train (j3) uses 8 GPUs of these nodes, eval (j5) 4, and 3 other jobs
    6 in total; eval (j5) is likely to end first: it ends in 5 to 9 min (80 % likely),
    judging by 12 similar jobs. For a job that requests no GPUs, the text only names
    closed nodes and resources held outside Corral.

    Args:
        code: reason code of the waiting job.
        now: wall-clock time.
    """
    if code not in NO_ROOM:
        return ""
    nodes = _candidate_nodes(world, job)
    others_text = _others_text([world.nodes[id] for id in nodes], job.spec)
    busy_text = "; ".join(filter(None, (_closed_text(world, nodes), others_text)))
    if not any(shape.gpu_millis for shape in job.spec.shapes):
        return busy_text
    held_counts = _gpu_millis_by_job(world, nodes)
    ranked = sorted(held_counts, key=lambda id: (-held_counts[id], id))
    if not ranked:
        return busy_text
    # one is not worth a count
    named_count = MOST_NAMED if len(ranked) > MOST_NAMED + 1 else len(ranked)
    top_holder, *other_holders = ranked[:named_count]
    holder_texts = [
        f"{_job_text(world, top_holder)} uses "
        f"{_gpu_count_text(held_counts[top_holder])} of these nodes"
    ]
    holder_texts += [
        f"{_job_text(world, id)} {gpus_text(held_counts[id])}" for id in other_holders
    ]
    rest = ranked[named_count:]
    if rest:
        together = gpus_text(sum(held_counts[id] for id in rest))
        holder_texts.append(f"and {len(rest)} other jobs {together} in total")
    jobs = (world.jobs[id] for id in ranked[:MOST_ASKED] if id in world.jobs)
    first_end_text = _first_end(((holder, ending_of(holder)) for holder in jobs), now)
    return "; ".join(filter(None, (busy_text, ", ".join(holder_texts), first_end_text)))


def _closed_text(world: World, nodes: set[NodeId]) -> str:
    """Return a text about the nodes that take no work. For example: n1 and n2 get no
    new jobs now (corral node ls shows why)."""
    closed = sorted(id for id in nodes if not world.nodes[id].takes_work)
    if not closed:
        return ""
    if len(closed) == 1:
        closed_reason = world.nodes[closed[0]].inventory.closed
        return (
            f"node {closed[0]} gets no new jobs now"
            f"{f': {closed_reason}' if closed_reason else ''} (see: corral node ls)"
        )
    nodes_text = (
        " and ".join(closed)
        if len(closed) <= MOST_NAMED
        else f"{len(closed)} suitable nodes"
    )
    return f"{nodes_text} get no new jobs now (see: corral node ls)"


def _others_text(nodes: Iterable[Node], spec: JobSpec) -> str:
    """Return a text about resources that programs outside Corral hold; "" if they hold
    nothing that the job requests. For example: programs outside Corral use 6 of 8 GPUs
    on n1."""
    resources = spec.shapes[-1].resources
    crowded = sorted(
        (node for node in nodes if node.takes_work), key=lambda one: one.id
    )
    for requested_amount, usage_getter, text in (
        (resources.gpu_millis, lambda has: len(has.taken), _gpus_taken),
        (resources.cpu_millis, lambda has: has.taken_cpu_millis, _cpus_taken),
        (resources.memory_bytes, lambda has: has.taken_memory_bytes, _memory_taken),
    ):
        taken_nodes = (
            [node for node in crowded if usage_getter(node.inventory)]
            if requested_amount
            else []
        )
        if len(taken_nodes) > MOST_NAMED:
            return (
                "programs outside Corral use "
                f"{text([node.inventory for node in taken_nodes])} on "
                f"{len(taken_nodes)} nodes"
            )
        if taken_nodes:
            node_texts = (
                f"{text([node.inventory])} on {node.id}" for node in taken_nodes
            )
            return f"programs outside Corral use {', '.join(node_texts)}"
    return ""


def _gpus_taken(found: Sequence[Inventory]) -> str:
    total = sum(len(inventory.gpus) for inventory in found)
    return f"{sum(len(inventory.taken) for inventory in found)} of {total} GPU{'s' * (total > 1)}"


def _cpus_taken(found: Sequence[Inventory]) -> str:
    total = sum(inventory.cpu_millis for inventory in found) / MILLIS_PER_CPU
    taken_cpus = sum(inventory.taken_cpu_millis for inventory in found) / MILLIS_PER_CPU
    return f"{taken_cpus:g} of {total:g} CPU{'s' * (total > 1)}"


def _memory_taken(found: Sequence[Inventory]) -> str:
    total = size_text(sum(inventory.memory_bytes for inventory in found))
    return f"{size_text(sum(inventory.taken_memory_bytes for inventory in found))} of {total}"


def _gpu_millis_by_job(world: World, nodes: set[NodeId]) -> Counter[JobId]:
    """Return the thousandths of GPUs that each job holds on these nodes. An exclusive
    job holds all GPUs of its nodes."""
    held_counts: Counter[JobId] = Counter()
    for allocation in world.allocations.values():
        millis = (
            world.held_gpu_millis(allocation.seat)
            if allocation.seat.node in nodes
            else 0
        )
        if millis:
            held_counts[allocation.job] += millis
    return held_counts


def _candidate_nodes(world: World, job: Job) -> set[NodeId]:
    """Return the nodes that match the job's placement rule and could hold one node's
    share of the job if nothing else ran. If a shape of the job requests GPUs, only such
    shapes count."""
    fleet, rule = NodeTypes(world.nodes.values()), job.spec.place
    all_resources = {shape.resources for shape in job.spec.shapes}
    resources = {
        requested for requested in all_resources if requested.gpu_millis
    } or all_resources
    return {
        node.id
        for node in world.nodes.values()
        if rule.admits(node.labels)
        and any(fleet.could_seat(node.id, requested) for requested in resources)
    }


def _first_end(endings: Iterable[tuple[Job, ExpectedEnd | None]], now: float) -> str:
    """Return a text about the likely first end of these; "" if unknown."""
    dated_endings = [
        (latest, str(job.id), job, ending)
        for job, ending in endings
        if ending is not None
        and (latest := _latest_end_seconds(ending, now)) is not None
    ]
    if not dated_endings:
        return ""
    _, _, job, ending = min(dated_endings, key=lambda one: one[:2])
    text = str(ending)
    if not text and ending.ends_by is not None:
        text = f"ends at {moment_text(ending.ends_by)} at the latest, by its limit"
    return f"{job.spec.name} ({job.id}) is likely to end first: it {text}"


def _latest_end_seconds(ending: ExpectedEnd, now: float) -> float | None:
    """Return the seconds until the job has ended in most cases, or at the latest by its
    limit. None if both are unknown."""
    if ending.ends is not None and ending.ends.high_seconds is not None:
        return ending.ends.high_seconds
    return None if ending.ends_by is None else ending.ends_by - now


def _job_text(world: World, id: JobId) -> str:
    if id not in world.jobs:
        return str(id)
    spec = world.jobs[id].spec
    return f"{spec.name} ({id}{', exclusive' if spec.place.exclusive else ''})"


def _gpu_count_text(millis: int) -> str:
    return f"{gpus_text(millis)} GPU{'s' * (millis > MILLIS_PER_GPU)}"
