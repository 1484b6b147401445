"""What the head knows, as the API shows it."""

import asyncio
from collections import Counter
from collections.abc import Container, Sequence
from typing import Final

from corral.control import Control, Planned
from corral.control.reasons import assumed_text
from corral.domain.attempt import Attempt, SeatState
from corral.domain.errors import NotFound
from corral.domain.forecast import Ending, Forecast
from corral.domain.ids import JobId, NodeId
from corral.domain.job import Job, JobSpec, Per
from corral.domain.node import Node
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.world import World
from corral.wire import api

ROWS_AT_ONCE: Final = 200
PREEMPTION: Final = ("preemption", "taking")  # kinds of receipts
RECEIPTS_SHOWN: Final = 3  # by `corral why`; all of them: corral show


async def find_job(control: Control, name: str) -> Job:
    """The job with this id, or the newest of this name. Raises: NotFound, Forgotten."""
    id = JobId(name)
    found = control.world.jobs.get(id) or await control.store.job(id)
    found = found or await control.store.named(name)
    if found is None and control.world.forgot(id) and not await control.store.array(name):
        raise control.keeping.retention.refusal(f"job {id}")
    if found is None:
        raise NotFound("job", name[:100], await control.store.names(), see="corral ps --all")
    return control.world.jobs.get(found.id, found)


def find_node(control: Control, name: str) -> Node:
    """Raises: NotFound."""
    nodes = control.world.nodes
    if NodeId(name) not in nodes:
        raise NotFound("node", name[:100], list(nodes), see="corral node ls")
    return nodes[NodeId(name)]


def job_row(control: Control, job: Job) -> api.Job:
    """A job as in a listing."""
    reason = control.reason(job)
    attempt = control.world.attempts.get(job.id)
    return api.Job.of(
        job,
        reason=reason.sentence,
        reason_code=reason.code,
        nodes=attempt.nodes if attempt else (),
        progress=None if job.is_final else control.progress(job),
    )


async def job_rows(control: Control, jobs: Sequence[Job]) -> list[api.Job]:
    """Many jobs as in a listing; agents are heard meanwhile."""
    rows = []
    for number, job in enumerate(jobs):
        rows.append(job_row(control, job))
        if number % ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return rows


async def job_detail(control: Control, job: Job, *, whole: bool) -> api.JobDetail:
    """A job with all that belongs to it; not `whole`: without what may hold secrets or code."""
    store = control.store
    attempts = await store.attempts(job.id)
    receipts = await store.receipts(job.id)
    saves = await store.saves(job.id)
    job = control.world.jobs.get(job.id) or await store.job(job.id) or job
    reason = control.reason(job)
    return api.JobDetail.of(
        job,
        reason=reason.sentence,
        reason_code=reason.code,
        nodes=attempts[-1].nodes if attempts else (),
        progress=None if job.is_final else control.progress(job),
        run=job.spec.run if whole else None,
        per=job.spec.per,
        workdir=job.spec.workdir if whole else None,
        max_duration_seconds=job.spec.max_duration_seconds,
        begins_at=job.begins_at,
        starts_by=job.starts_by,
        place=api.Place.of(job.spec.place),
        preemptible=job.spec.preemptible,
        attempts=[api.Attempt.of(one) for one in attempts],
        receipts=[api.Receipt.of(one) for one in receipts],
        checkpoints=[api.Checkpoint.of(one) for one in saves],
    )


async def why(
    control: Control, job: Job, forecast: Forecast | None, ending: Ending | None
) -> api.Why:
    receipts = [one for one in await control.store.receipts(job.id) if one.kind in PREEMPTION]
    reason = control.reason(job)
    return api.Why(
        id=job.id,
        name=job.spec.name,
        state=job.state,
        reason=reason.sentence,
        code=reason.code,
        suggestions=list(reason.suggestions),
        receipts=[api.Receipt.of(one) for one in receipts[-RECEIPTS_SHOWN:]],
        forecast=api.Forecast.of(forecast) if forecast is not None else None,
        ending=api.Ending.of(ending) if ending is not None else None,
        assumed=assumed_text(control.world, job, control.learning.table),
    )


def node_rows(world: World, heard: Container[NodeId]) -> list[api.Node]:
    """All nodes, in one pass over the allocations."""
    jobs: dict[NodeId, dict[JobId, None]] = {id: {} for id in world.nodes}
    taken: Counter[NodeId] = Counter()
    for one in world.allocations.values():
        jobs.setdefault(one.seat.node, {})[one.job] = None
        taken[one.seat.node] += one.seat.gpu_millis
    return [
        api.Node.of(
            node, heard=node.id in heard, jobs=list(jobs[node.id]), taken_gpu_millis=taken[node.id]
        )
        for node in sorted(world.nodes.values(), key=lambda node: node.id)
    ]


def node_detail(world: World, heard: Container[NodeId], node: Node) -> api.NodeDetail:
    held = [one for one in world.allocations.values() if one.seat.node == node.id]
    inventory = node.inventory
    devices = [
        api.NodeGpu(
            index=gpu.index,
            uuid=gpu.uuid,
            type=gpu.type,
            memory_bytes=gpu.memory_bytes,
            pretend=gpu.pretend,
            slices=len(gpu.slices),
            numa=gpu.numa,
            jobs=[one.job for one in held if gpu.index in one.seat.gpus],
        )
        for gpu in inventory.gpus
    ]
    return api.NodeDetail.of(
        node,
        heard=node.id in heard,
        jobs=list(dict.fromkeys(one.job for one in held)),
        taken_gpu_millis=sum(one.seat.gpu_millis for one in held),
        boot=node.boot,
        devices=devices,
        containment=inventory.containment,
        private_root=inventory.private_root,
        gpu_shares=inventory.gpu_shares,
        shared=[path for path, _ in inventory.shared],
    )


def gpus(world: World) -> api.Gpus:
    """GPUs of the cluster: what is there, what is held, what could be had now."""
    total = sum(len(node.inventory.gpus) for node in world.nodes.values())
    held = [one for one in world.allocations.values() if one.state != SeatState.RELEASED]
    taking = {node.id for node in world.nodes.values() if node.takes_work}
    ready = sum(len(world.nodes[id].inventory.gpus) for id in taking)
    used = sum(one.seat.gpu_millis for one in held)
    used_there = sum(one.seat.gpu_millis for one in held if one.seat.node in taking)
    return api.Gpus(
        total=total,
        free=max(0.0, ready - used_there / MILLIS_PER_GPU),
        used=used / MILLIS_PER_GPU,
        away=total - ready,
    )


def planned(one: Planned, forecast: Forecast | None = None) -> api.PlannedJob:
    """What would happen to one job of a submission."""
    spec, seats = one.spec, one.seats
    shape = one.shape or spec.shapes[0]
    each = ranks_each(spec, seats[0].gpus if seats else range(shape.resources.gpus))
    return api.PlannedJob(
        name=spec.name,
        starts_now=bool(seats),
        shape=api.Shape.of(shape.nodes, shape.resources),
        seats=[api.Seat.of(seat) for seat in seats],
        ranks=each * shape.nodes,
        environment=_environment(spec, shape.nodes, each, seats[0].gpus if seats else ()),
        reason=one.reason.sentence if one.reason else "",
        code=one.reason.code if one.reason else "",
        suggestions=list(one.reason.suggestions) if one.reason else [],
        forecast=api.Forecast.of(forecast) if forecast is not None else None,
        stops=list(one.stops),
    )


def ranks_each(spec: JobSpec, gpus: Sequence[int]) -> int:
    """Ranks of each node of a gang."""
    return 1 if spec.per == Per.NODE else max(1, len(gpus))


async def rank_bound(control: Control, job: Job) -> int:
    """Above every rank that the job has had; 0 before its first attempt."""
    attempts = await control.store.attempts(job.id)
    counts = [len(one.nodes) * ranks_each(job.spec, one.seats[0].gpus) for one in attempts]
    return max(counts, default=0)


def ranks_on(spec: JobSpec, attempt: Attempt, node: NodeId) -> range:
    """The ranks that a node of the attempt has; none for another node."""
    if node not in attempt.nodes:
        return range(0)
    each = ranks_each(spec, attempt.seats[0].gpus)
    first = attempt.nodes.index(node) * each
    return range(first, first + each)


def _environment(spec: JobSpec, nodes: int, each: int, gpus: Sequence[int]) -> dict[str, str]:
    """Of rank 0, but for what is known only at the start: addresses, ports, paths, secrets."""
    own = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "NODE_RANK": "0",
        "WORLD_SIZE": str(nodes * each),
        "LOCAL_WORLD_SIZE": str(each),
        "CORRAL_JOB_NAME": spec.name,
    }
    if gpus:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in gpus)
    if spec.array_index is not None:
        own["CORRAL_ARRAY_INDEX"] = str(spec.array_index)
    return dict(spec.env) | own
