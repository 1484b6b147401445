"""Views of the head's state for the API."""

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final

from corral.api.restart_command import loss_advice, origin_text, restart_text
from corral.api.sent_signals import with_sender
from corral.control import Control, Planned
from corral.control.blocking_jobs import holders_text
from corral.control.hang_texts import earlier_hang_text, hang_text
from corral.control.job_reasons import assumed_text
from corral.control.lent_gpus import lent_text
from corral.control.rank_accounts import rank_account_text
from corral.control.stdin_waits import input_text
from corral.domain.attempt import Attempt, Save, SeatState
from corral.domain.errors import NotFound
from corral.domain.ids import JobId, NodeId
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.node import Node
from corral.domain.rank_layout import ranks_each
from corral.domain.reason_code import ReasonCode
from corral.domain.receipt import ReceiptKind
from corral.domain.run_history import ExpectedEnd, StartForecast
from corral.domain.telemetry import NodeSample
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.world import World
from corral.health.repair_commands import mending
from corral.insight.bottleneck import Bottleneck, hung
from corral.schedule.waiting import Reason
from corral.wire import api
from corral.wire.job_parts import BottleneckView as BottleneckShown
from corral.wire.job_parts import Failed
from corral.wire.slurm.reasons import slurm_reason

ROWS_AT_ONCE: Final = 200
# of receipts
# receipts that explain why a job has stopped or started
PREEMPTION: Final = frozenset(
    {
        ReceiptKind.PREEMPTION,
        ReceiptKind.RELOCATION,
        ReceiptKind.SHRINK,
        ReceiptKind.REQUEUE,
        ReceiptKind.DRAIN,
        ReceiptKind.TAKING,
    }
)
RECEIPTS_SHOWN: Final = 3  # by `corral why`; all of them: corral show
NO_LINE: Final[Mapping[JobId, int]] = {}


def find_node(control: Control, name: str) -> Node:
    """Return the node of this name.

    Raises: NotFound.
    """
    nodes = control.world.nodes
    if NodeId(name) not in nodes:
        raise NotFound("node", name[:100], list(nodes), see="corral node ls")
    return nodes[NodeId(name)]


def job_row(control: Control, job: Job) -> api.JobView:
    """Return a job as a row of a listing."""
    reason = control.reason(job)
    attempt = control.world.attempts.get(job.id)
    return api.JobView.of(
        job,
        reason=reason.sentence,
        reason_code=reason.code,
        nodes=attempt.nodes if attempt else (),
        progress=None if job.is_final else control.progress(job),
        held_gpus=held_gpus(job, attempt),
        running_since=running_since(job, attempt),
    )


def held_gpus(job: Job, attempt: Attempt | None) -> float | None:
    """Return the number of GPUs that the job holds now, which varies for an elastic job
    or a job with several shapes. Return None if the job has no nodes now."""
    if attempt is None or not job.state.is_on_nodes:
        return None
    return sum(seat.gpu_millis for seat in attempt.seats) / MILLIS_PER_GPU


def running_since(job: Job, attempt: Attempt | None) -> float | None:
    """Return when the attempt began to run, by the wall clock; None if it does not run
    now."""
    runs = attempt is not None and job.state.is_on_nodes and attempt.ended_at is None
    return attempt.running_at if attempt is not None and runs else None


async def job_rows(control: Control, jobs: Sequence[Job]) -> list[api.JobView]:
    """Return the jobs as rows of a listing. Between rows, the head continues to process
    agents' messages."""
    rows = []
    for number, job in enumerate(jobs):
        rows.append(job_row(control, job))
        if number % ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return rows


async def job_detail(
    control: Control, job: Job, *, whole: bool, whose: str = ""
) -> api.JobDetail:
    """Return a job with all its details. Without `whole`, fields that may hold secrets
    or code are left out. `whose` is a note for the answer if the name belongs to a job
    of another user than the caller."""
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
        held_gpus=held_gpus(job, control.world.attempts.get(job.id)),
        running_since=running_since(job, control.world.attempts.get(job.id)),
        bottleneck=BottleneckShown.of(bottleneck_of(control, job)),
        run=job.spec.run if whole else None,
        per=job.spec.per,
        workdir=job.spec.workdir if whole else None,
        image=job.spec.image if whole else None,
        begins_at=job.begins_at,
        starts_by=job.starts_by,
        place=api.PlaceView.of(job.spec.place),
        preemptible=job.spec.preemptible,
        warned=api.Warned.of(job.spec),
        whose=whose,
        forms=api.Form.all_of(job.spec.shapes),
        attempts=[api.AttemptView.of(attempt, whole=whole) for attempt in attempts],
        receipts=[api.ReceiptView.of(receipt) for receipt in receipts],
        pretend=_has_pretend(control.world, attempts[-1].nodes if attempts else ()),
        origin=origin_text(job.spec.origin),
        next=restart_text(job, saves, whole=whole),
        service=job.spec.replica.service if job.spec.replica is not None else "",
        checkpoints=api.CheckpointView.all_of(saves, job.spec.checkpoint),
    )


def _has_pretend(world: World, nodes: Sequence[NodeId]) -> bool:
    """Return whether any of these nodes has pretend GPUs. If none of them is known,
    return whether any node of the cluster has."""
    known_nodes = [
        world.nodes[id] for id in nodes if id in world.nodes
    ] or world.nodes.values()
    return any(node.inventory.pretend for node in known_nodes)


def bottleneck_of(control: Control, job: Job) -> Bottleneck | None:
    """Return what limits a running job's speed; None if unknown."""
    if job.state != JobState.RUNNING:
        return None
    now = control.now()
    hang = hang_text(control.world, control.facts, job, now, whole=False)
    if hang:
        return hung(hang, job.id)
    paces = control.ledger.paces
    return paces.bottleneck(control.world, control.sensed, job.id, now.wall)


def _suggestions(
    control: Control,
    job: Job,
    reason: Reason,
    attempts: Sequence[Attempt],
    saves: Sequence[Save],
    *,
    whole: bool,
) -> list[str]:
    """Return hints on what a user can do about the job's state, most important first.
    `whole`: as at `job_detail`."""
    bottleneck = bottleneck_of(control, job)
    is_done = whole and job.state == JobState.DONE
    doubt = attempts[-1].quote if attempts and is_done else ""
    texts = [input_text(control.world, control.facts, job), *reason.suggestions]
    if attempts:
        texts += loss_advice(job, attempts[-1])
    if bottleneck is not None and reason.code is not ReasonCode.HANG:
        texts += [f"bottleneck: {bottleneck.text}", f"try {bottleneck.advice}"]
    if attempts:
        texts.append(rank_account_text(control.world, job, attempts[-1]))
    if doubt:
        texts.append(f"a line of its log: {doubt}")
    texts.append(restart_text(job, saves, whole=whole))
    return [text for text in texts if text]


async def why(
    control: Control,
    job: Job,
    forecast: StartForecast | None,
    ending_of: Callable[[Job], ExpectedEnd | None],
    *,
    whole: bool,
    whose: str = "",
    line: Mapping[JobId, int] = NO_LINE,
) -> api.Why:
    """Return why the job is in its state. `forecast` is its expected start. `ending_of`
    returns when a running job is expected to end. `line` holds the position of each
    waiting job in the queue. `whole` and `whose` are described at `job_detail`."""
    attempts = await control.store.attempts(job.id)
    receipts = [
        receipt
        for receipt in await control.store.receipts(job.id)
        if receipt.kind in PREEMPTION or receipt.in_place
    ]
    reason, ending = control.reason(job), ending_of(job)
    saves = await control.store.saves(job.id) if job.is_final else ()
    failed = Failed.of(attempts[-1], whole=whole) if attempts else None
    if failed is not None and whole:
        failed = await with_sender(control, job, attempts[-1], failed)
    hang = hang_text(control.world, control.facts, job, control.now(), whole=whole)
    return api.Why(
        id=job.id,
        name=job.spec.name,
        state=job.state,
        reason=hang or reason.sentence,
        code=reason.code,
        suggestions=_suggestions(control, job, reason, attempts, saves, whole=whole),
        receipts=[
            api.ReceiptView.of(receipt) for receipt in receipts[-RECEIPTS_SHOWN:]
        ],
        forecast=api.StartForecastView.of(forecast) if forecast is not None else None,
        ending=api.ExpectedEndView.of(ending) if ending is not None else None,
        assumed=assumed_text(control.world, job, control.learning.table),
        whose=whose,
        failed=failed,
        hang=earlier_hang_text(attempts, whole=whole),
        holders=holders_text(
            control.world, job, reason.code, control.now().wall, ending_of
        ),
        place=line.get(job.id),
        waiting=len(line),
        slurm=slurm_reason(job.state, reason.code) if job.state.is_waiting else "",
        lent=lent_text(control.world, job.id),
    )


def node_rows(
    world: World, heard: Container[NodeId], sensed: Mapping[NodeId, NodeSample]
) -> list[api.NodeView]:
    """Return all nodes as rows of a listing, in one pass over the allocations. `sensed`
    holds each node's last sample."""
    jobs: dict[NodeId, dict[JobId, None]] = {id: {} for id in world.nodes}
    gpu_millis_by_node: Counter[NodeId] = Counter()
    exclusive_jobs: dict[NodeId, JobId] = {}
    gpus_by_node: dict[NodeId, list[int]] = {id: [] for id in world.nodes}
    for allocation in world.allocations.values():
        jobs.setdefault(allocation.seat.node, {})[allocation.job] = None
        gpu_millis_by_node[allocation.seat.node] += allocation.seat.gpu_millis
        gpus_by_node.setdefault(allocation.seat.node, []).extend(allocation.seat.gpus)
        if allocation.seat.exclusive:
            exclusive_jobs[allocation.seat.node] = allocation.job
    return [
        api.NodeView.of(
            node,
            has_heartbeat=node.id in heard,
            jobs=list(jobs[node.id]),
            taken_gpu_millis=gpu_millis_by_node[node.id],
            held_whole_by=exclusive_jobs.get(node.id),
            held=gpus_by_node[node.id],
            sensed=sensed.get(node.id),
        )
        for node in sorted(world.nodes.values(), key=lambda node: node.id)
    ]


def node_detail(control: Control, node: Node) -> api.NodeDetail:
    world = control.world
    allocations = [
        allocation
        for allocation in world.allocations.values()
        if allocation.seat.node == node.id
    ]
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
            taken=gpu.taken,
            jobs=[
                allocation.job
                for allocation in allocations
                if gpu.index in allocation.seat.gpus
            ],
        )
        for gpu in inventory.gpus
    ]
    return api.NodeDetail.of(
        node,
        has_heartbeat=node.id in control.facts.nodes,
        jobs=list(dict.fromkeys(allocation.job for allocation in allocations)),
        taken_gpu_millis=sum(allocation.seat.gpu_millis for allocation in allocations),
        held_whole_by=next(
            (allocation.job for allocation in allocations if allocation.seat.exclusive),
            None,
        ),
        boot=node.boot,
        devices=devices,
        containment=inventory.containment,
        private_root=inventory.private_root,
        shared_account=inventory.shared_account,
        refused_users=dict(inventory.refused_users),
        gpu_shares=inventory.gpu_shares,
        shared=[path for path, _ in inventory.shared],
        conditions=[
            api.NodeConditionView.of(condition, mending(condition, node))
            for condition in node.conditions
        ],
        checks=api.results_of(node.measures),
        checkups=[api.CheckWaiting.of(checkup) for checkup in node.checkups],
        checked_at=node.checked_at,
        held=[index for allocation in allocations for index in allocation.seat.gpus],
        sensed=control.sensed.newest.get(node.id),
        sample=control.sensed.newest.get(node.id),
    )


def gpus(world: World) -> api.Gpus:
    """Return the numbers of GPUs in the cluster: in total, used, and available now. If
    a job holds a node exclusively, all GPUs of that node count as used. GPUs that other
    software uses are not available."""
    total = sum(len(node.inventory.gpus) for node in world.nodes.values())
    taking = {node.id for node in world.nodes.values() if node.takes_work}
    ready = sum(len(world.nodes[id].inventory.gpus) for id in taking)
    millis_by_node: Counter[NodeId] = Counter()
    for allocation in world.allocations.values():
        if allocation.state != SeatState.RELEASED:
            millis_by_node[allocation.seat.node] += world.held_gpu_millis(
                allocation.seat
            )
    used_there = sum(millis_by_node[id] for id in taking)
    foreign_gpu_count = sum(len(world.nodes[id].inventory.taken) for id in taking)
    return api.Gpus(
        total=total,
        free=max(0.0, ready - foreign_gpu_count - used_there / MILLIS_PER_GPU),
        used=millis_by_node.total() / MILLIS_PER_GPU,
        away=total - ready,
        taken=foreign_gpu_count,
        pretend=sum(
            len(node.inventory.gpus)
            for node in world.nodes.values()
            if node.inventory.pretend
        ),
    )


def planned(
    one: Planned, forecast: StartForecast | None = None, *, with_env: bool = True
) -> api.PlannedJob:
    """Return what would happen to one job of a submission. `with_env`: include the
    environment variables that the job's spec sets."""
    spec, seats = one.spec, one.seats
    shape = one.shape or spec.shapes[0]
    ranks_per_node = ranks_each(
        spec, seats[0].gpus if seats else range(shape.resources.gpus)
    )
    environment = dict(spec.env) if with_env else {}
    environment |= _interface(
        spec, shape.nodes, ranks_per_node, seats[0].gpus if seats else ()
    )
    # how many ranks there are is known when it starts
    if len(spec.shapes) > 1 and not seats:
        for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            environment.pop(name, None)
    return api.PlannedJob(
        name=spec.name,
        starts_now=bool(seats),
        shape=api.ShapeView.of(shape.nodes, shape.resources),
        seats=[api.SeatView.of(seat) for seat in seats],
        ranks=ranks_per_node * shape.nodes,
        environment=environment,
        reason=one.reason.sentence if one.reason else "",
        code=one.reason.code if one.reason else "",
        suggestions=list(one.reason.suggestions) if one.reason else [],
        forecast=api.StartForecastView.of(forecast) if forecast is not None else None,
        stops=list(one.stops),
        forms=api.Form.all_of(spec.shapes),
        queue=spec.queue,
        priority=spec.priority,
        max_duration_seconds=spec.max_duration_seconds,
        place=api.PlaceView.of(spec.place),
        preemptible=spec.preemptible,
        warned=api.Warned.of(spec),
        kind="ray" if spec.ray else "job",
        image=spec.image,
        origin=origin_text(spec.origin),
    )


async def rank_bound(control: Control, job: Job) -> int:
    """Return a number that is above all rank numbers of the job's attempts; 0 before
    the first attempt."""
    attempts = await control.store.attempts(job.id)
    counts = [
        len(attempt.nodes) * ranks_each(job.spec, attempt.seats[0].gpus)
        for attempt in attempts
    ]
    return max(counts, default=0)


def _interface(
    spec: JobSpec, nodes: int, each: int, gpus: Sequence[int]
) -> dict[str, str]:
    """Return the variables that Corral sets for rank 0. Values that are known only at
    the start are left out: addresses, ports, paths, secrets. `each`: ranks per node."""
    ranks = {
        "RANK": "0",
        **({"LOCAL_RANK": "0"} if each > 1 or len(gpus) <= 1 else {}),
        "NODE_RANK": "0",
        "WORLD_SIZE": str(nodes * each),
        "LOCAL_WORLD_SIZE": str(each),
    }
    # A Ray program is not a rank.
    own_variables = {**({} if spec.ray else ranks), "CORRAL_JOB_NAME": spec.name}
    if gpus:
        own_variables["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in gpus)
    if spec.array_index is not None:
        own_variables["CORRAL_ARRAY_INDEX"] = str(spec.array_index)
    return own_variables
