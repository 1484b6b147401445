"""A service with its replicas, and counters of gateways, for tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from corral.domain.attempt import Attempt, Seat
from corral.domain.ids import AttemptNumber, ClusterId, JobId, NodeId, ServiceName
from corral.domain.ids import Sequence as Order
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.replica_jobs import replica_id, replica_spec
from corral.domain.service import ReplicaRow, Service, ServiceRevision, ServiceSpec
from corral.domain.world import World
from corral.wire.gateway_counters import (
    CountersReport,
    ReportedHistogram,
    ReportedProcess,
    ReportedReplica,
    ReportedRevision,
    ReportedService,
    ReportedTokens,
)
from tests.worlds import ALICE, node

BOUNDS = (0.1, 0.5, 1.0)


def spec(name: str = "chat", **more: Any) -> ServiceSpec:
    more.setdefault("models", ("tiny",))
    return ServiceSpec(
        name=ServiceName(name), replica=JobSpec(name="r", run="true"), **more
    )


def service(*rows: ReplicaRow, id: str = "j1", **more: Any) -> Service:
    own_spec = more.pop("spec", None) or spec()
    revisions = more.pop("revisions", (own_spec,))
    return Service(
        id=JobId(id),
        name=own_spec.name,
        owner=ALICE,
        created_at=1.0,
        revisions=tuple(
            ServiceRevision(number=number, spec=one, by=ALICE, at=1.0)
            for number, one in enumerate(revisions, 1)
        ),
        current=more.pop("current", 1),
        key_seed="seed",
        replicas=rows,
        **more,
    )


def row(number: int, revision: int = 1, **more: Any) -> ReplicaRow:
    more.setdefault("ready_at", 5.0)
    more.setdefault("attempt", AttemptNumber(1))
    return ReplicaRow(
        number=number,
        job=replica_id(JobId("j1"), number),
        revision=revision,
        **more,
    )


def world_of(*services: Service, states: Mapping[str, JobState] | None = None) -> World:
    """All replicas run on one node, on ports from 20001 on."""
    world = World(cluster=ClusterId("c"), term=3)
    own_node = node("n1")
    world.nodes[own_node.id] = own_node
    for one in services:
        world.services[one.name] = one
        for replica in one.replicas:
            world.jobs[replica.job] = Job(
                id=replica.job,
                spec=replica_spec(one, replica.revision, replica.number),
                owner=ALICE,
                submitted=Order(1),
                submitted_at=1.0,
                state=(states or {}).get(replica.job, JobState.RUNNING),
                since=1.0,
                attempt=AttemptNumber(1),
            )
            world.attempts[replica.job] = Attempt(
                job=replica.job,
                number=AttemptNumber(1),
                seats=(Seat(node=NodeId("n1")),),
                master_port=20_000 + replica.number,
                placed_at=1.0,
            )
    return world


def report(process: str = "process-1", **services: ReportedService) -> CountersReport:
    return CountersReport(
        bounds={"ttft": BOUNDS, "itl": BOUNDS},
        processes=(ReportedProcess(process=process, services=services),),
    )


def counted(
    requests: int = 0,
    *,
    failed: int = 0,
    tokens: Mapping[str, tuple[int, ...]] | None = None,
    ttft: Sequence[int] = (0, 0, 0, 0),
    under_way: Mapping[str, int] | None = None,
    revision: int = 1,
    queued: int = 0,
) -> ReportedService:
    """`tokens`: prompt, cached and output tokens by caller, and its requests; `ttft`:
    counts by BOUNDS."""
    gauges = under_way or {}
    return ReportedService(
        arrivals=requests,
        in_flight=sum(gauges.values()) + queued,
        queued=queued,
        revisions=(
            ReportedRevision(
                revision=revision,
                requests={200: requests - failed, 502: failed},
                tokens={
                    caller: ReportedTokens(*counts)
                    for caller, counts in (tokens or {}).items()
                },
                ttft=ReportedHistogram(tuple(ttft), float(sum(ttft))),
            ),
        ),
        replicas=tuple(
            ReportedReplica(name=name, in_flight=count)
            for name, count in gauges.items()
        ),
    )
