"""Rows for the tests of stores."""

from typing import Any

from corral.domain.attempt import Allocation, Attempt, Save, Seat, SeatState
from corral.domain.batch import Batch, BatchId, FileId, FilePurpose, StoredFile
from corral.domain.cause import Cause
from corral.domain.event_kind import EventKind
from corral.domain.gateway_counts import CallerCounts, GatewayCount
from corral.domain.ids import (
    AttemptNumber,
    JobId,
    NodeId,
    QueueName,
    Sequence,
    ServiceName,
    UserName,
    job_id,
)
from corral.domain.imported import Imported
from corral.domain.job import CheckpointRule, Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.ledger import UsageAmounts, UsageRecord
from corral.domain.node import Liveness, Node
from corral.domain.queue import Budget, Queue
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.receipt import Receipt, ReceiptKind
from corral.domain.replica_jobs import replica_id
from corral.domain.requests import Submit
from corral.domain.resources import Gpu, Inventory, Resources, Shape
from corral.domain.run_history import StartForecastTold
from corral.domain.service import ReplicaRow, Service, ServiceRevision, ServiceSpec
from corral.domain.usage import BudgetSpent, Debt, QueueUsage, Reservation, Victim
from corral.domain.world import Event

ANN = UserName("ann")


def spec(name: str = "tiny-gpt", **changes: Any) -> JobSpec:
    return JobSpec(
        name=name,
        run="python train.py",
        nodes=2,
        resources=Resources(gpu_millis=8000, gpu_type="h100", memory_bytes=256 * 10**9),
        env=(("A", "b"), ("UNICODE", "né ☃")),
        checkpoint=CheckpointRule(path="./ckpt"),
        **changes,
    )


def submit(name: str = "tiny-gpt", key: str = "") -> Submit:
    return Submit(specs=(spec(name),), key=key)


def job(sequence: int, state: JobState = JobState.QUEUED, **changes: Any) -> Job:
    asked = changes.pop("spec", None) or spec(f"job-{sequence}")
    return Job(
        id=changes.pop("id", job_id(sequence)),
        spec=asked,
        owner=changes.pop("owner", ANN),
        submitted=Sequence(sequence),
        submitted_at=1000.5 + sequence,
        state=state,
        since=1001.25,
        **changes,
    )


def attempt(of: JobId, number: int = 1, **changes: Any) -> Attempt:
    seats = (Seat(node=NodeId("n1"), gpus=(0, 1), gpu_millis=2000),)
    return Attempt(
        job=of,
        number=AttemptNumber(number),
        seats=seats,
        master_port=29500,
        placed_at=5.0,
        **changes,
    )


def allocation(
    of: JobId, number: int = 1, node: str = "n1", state: SeatState = SeatState.HELD
) -> Allocation:
    seat = Seat(node=NodeId(node), gpus=(0,), gpu_millis=1000)
    return Allocation(
        job=of, attempt=AttemptNumber(number), seat=seat, state=state, port=29500
    )


def save(of: JobId, step: int, number: int = 1, *, quarantined: str = "") -> Save:
    return Save(
        job=of,
        attempt=AttemptNumber(number),
        step=step,
        path=f"/shared/{of}/{step}",
        manifest_sha256="ab" * 32,
        size_bytes=200_000_000,
        seconds=1.5,
        stall_seconds=0.01,
        at=7.0,
        quarantined=quarantined,
    )


def receipt(
    of: JobId,
    number: int = 1,
    *,
    kind: ReceiptKind = ReceiptKind.FAILURE,
    **changes: Any,
) -> Receipt:
    return Receipt(
        job=of,
        attempt=AttemptNumber(number),
        kind=kind,
        cause=Cause.INFRA,
        culprit="node n1",
        evidence="silent for 10 s",
        steps_lost=12,
        gpu_seconds_lost=81.5,
        seen_at=9.0,
        **changes,
    )


def node(name: str = "n1", gpus: int = 8) -> Node:
    own = tuple(
        Gpu(index=i, uuid=f"GPU-{name}-{i}", type="h100", memory_bytes=80 * 10**9)
        for i in range(gpus)
    )
    ports = tuple(range(29500, 29516))
    inventory = Inventory(gpus=own, cpu_millis=64000, memory_bytes=10**12, ports=ports)
    return Node(
        id=NodeId(name),
        inventory=inventory,
        liveness=Liveness.ALIVE,
        why="heartbeats arrive",
    )


def event(text: str = "it happened", of: JobId | None = None) -> Event:
    return Event(at=3.0, kind=EventKind.SUBMITTED, text=text, job=of)


def tree(gpus: int = 8) -> QueueTree:
    budget = Budget(
        money=900.5, rates=(("any", 1.25), ("h100", 2.5)), period_seconds=86400.0
    )
    team = Queue(
        name=QueueName("team"), nominal=(("h100", gpus * 1000),), budget=budget
    )
    below = Queue(
        name=QueueName("below"), parent=team.name, weight=0.5, lend_limit_millis=0
    )
    return whole_tree([team, below], min_runtime_seconds=60.0)


def use(queue: str = "team", user: str = "ann", gpu_seconds: float = 0.1) -> QueueUsage:
    return QueueUsage(
        queue=QueueName(queue), user=UserName(user), at=11.5, gpu_seconds=gpu_seconds
    )


def account(
    of: JobId | None, day: int = 3, number: int = 1, **amounts: float
) -> UsageRecord:
    """40 GPU-seconds of Ann's in queue team, with what `amounts` says."""
    return UsageRecord(
        day=day,
        queue=QueueName("team"),
        user=ANN,
        gpu_type="h100",
        amounts=UsageAmounts(
            **{"allocated_gpu_seconds": 40.0, "money": 0.1, **amounts}
        ),
        job=of,
        attempt=AttemptNumber(number if of else 0),
        name="tiny-gpt" if of else "",
    )


def debt(queue: str = "team", *, rate: float = 2.0) -> Debt:
    return Debt(queue=QueueName(queue), at=3.0, gpus=-1 / 3, rate=rate)


def spent(queue: str = "team", *, demoted: bool = False) -> BudgetSpent:
    return BudgetSpent(
        queue=QueueName(queue), since=3.0, gpu_seconds=1 / 3, money=0.1, demoted=demoted
    )


def reservation(of: JobId, *, ended: str = "") -> Reservation:
    asked = Resources(gpu_millis=1000)
    seat = Seat(node=NodeId("n1"), gpus=(0,), gpu_millis=1000)
    victim = Victim(job=JobId("j9"), attempt=AttemptNumber(1), due_at=5.0)
    return Reservation(
        job=of,
        shape=Shape(nodes=1, resources=asked),
        seats=(seat,),
        victims=(victim,),
        since=4.0,
        ended=ended,
    )


def told(
    of: JobId, at: float = 2.0, *, waited_seconds: float | None = None
) -> StartForecastTold:
    return StartForecastTold(
        job=of,
        at=at,
        drawn_low_seconds=60.0,
        drawn_high_seconds=600.0,
        low_seconds=50.5,
        high_seconds=720.25,
        waited_seconds=waited_seconds,
    )


def imported(name: str, ended_at: float = 50.0, *, seconds: float = 10.0) -> Imported:
    return Imported(
        id=f"sacct:{name}",
        name=f"train-{name}",
        user=ANN,
        queue=QueueName("gpu"),
        shape=Shape(nodes=2, resources=Resources(gpu_millis=4000)),
        submitted_at=ended_at - seconds - 5.0,
        started_at=ended_at - seconds,
        ended_at=ended_at,
        seconds=seconds,
        state="COMPLETED",
        limit_seconds=3600.0,
    )


def gateway_count(
    process: str = "p1", service: str = "chat", output: int = 7
) -> GatewayCount:
    return GatewayCount(
        process=process,
        service=ServiceName(service),
        queue=QueueName("team"),
        at=4.5,
        users={ANN: CallerCounts(3, 100, 40, output), UserName("é ☃"): CallerCounts()},
        days=((3, 90), (4, 107)),
    )


def service_spec(name: str = "chat", **changes: Any) -> ServiceSpec:
    return ServiceSpec(
        name=ServiceName(name), replica=spec(name), models=(name, "né ☃"), **changes
    )


def service(sequence: int = 7, name: str = "chat", **changes: Any) -> Service:
    id = job_id(sequence)
    revision = ServiceRevision(number=1, spec=service_spec(name), by=ANN, at=1.5)
    row = ReplicaRow(number=1, job=replica_id(id, 1), revision=1, ready_at=2.5)
    fields: dict[str, Any] = {
        "id": id,
        "name": ServiceName(name),
        "owner": ANN,
        "created_at": 1.25,
        "revisions": (revision,),
        "current": 1,
        "key_seed": "5eed",
        "wanted": 1,
        "next_number": 2,
        "replicas": (row,),
    }
    return Service(**(fields | changes))


def stored_file(id: str = "f1", owner: UserName = ANN, at: float = 1.0) -> StoredFile:
    return StoredFile(
        id=FileId(id),
        owner=owner,
        name="é ☃.jsonl",
        purpose=FilePurpose.BATCH,
        size_bytes=100,
        created_at=at,
        expires_at=at + 10.0,
    )


def batch(id: str = "b1", owner: UserName = ANN, at: float = 1.0) -> Batch:
    return Batch(
        id=BatchId(id),
        owner=owner,
        name="batch-a",
        input_file=FileId("f1"),
        endpoint="/v1/completions",
        window="24h",
        created_at=at,
        deadline=at + 86_400.0,
        metadata=(("k", "v"),),
    )
