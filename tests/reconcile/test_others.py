"""What others than Corral hold of a node: work waits for it, and none is refused for it
(0044)."""

from dataclasses import replace

import pytest

from corral.control.blocking_jobs import holders_text
from corral.control.request_checks import check_specs
from corral.domain.errors import InvariantBroken
from corral.domain.ids import JobId, NodeId
from corral.domain.job import JobSpec
from corral.domain.job_states import JobState
from corral.domain.reason_code import ReasonCode
from corral.domain.resources import Inventory, Resources
from corral.reconcile import Now
from corral.reconcile.cache.pass_cache import Memo
from corral.reconcile.changeset import Draft
from corral.reconcile.invariants import check
from tests.worlds import Cluster, gang, inventory, node


def held(gpus: int = 0, **more: object) -> Inventory:
    """Of two GPUs, 8 CPUs and 64 GB others hold this, the last GPUs first."""
    has = inventory()
    marked = tuple(replace(gpu, taken=gpu.index >= 2 - gpus) for gpu in has.gpus)
    return replace(has, gpus=marked, **more)  # type: ignore[arg-type]


def hold(cluster: Cluster, id: str, offers: Inventory) -> None:
    """From now on the node says this."""
    cluster.nodes[NodeId(id)] = replace(cluster.nodes[NodeId(id)], inventory=offers)
    cluster.tick()


def state(cluster: Cluster, id: JobId) -> JobState:
    return cluster.world.jobs[id].state


def why(cluster: Cluster, id: JobId) -> str:
    job = cluster.world.jobs[id]
    return holders_text(
        cluster.world, job, ReasonCode.RESOURCES, cluster.wall, lambda _: None
    )


def asks(*, cpu_millis: int = 0, memory_bytes: int = 0) -> JobSpec:
    return JobSpec(
        name="asks",
        run="true",
        resources=Resources(cpu_millis=cpu_millis, memory_bytes=memory_bytes),
    )


@pytest.mark.parametrize(
    ("offers", "spec", "said"),
    [
        (held(1), gang(gpus=2), "programs outside Corral use 1 of 2 GPUs on n1"),
        (
            held(taken_cpu_millis=6500),
            asks(cpu_millis=2000),
            "programs outside Corral use 6.5 of 8 CPUs on n1",
        ),
        (
            held(taken_memory_bytes=60 * 10**9),
            asks(memory_bytes=10**10),
            "programs outside Corral use 60 GB of 64 GB on n1",
        ),
        (
            held(closed="it is cordoned"),
            gang(),
            "node n1 gets no new jobs now: it is cordoned (see: corral node ls)",
        ),
    ],
    ids=["gpus", "cpus", "memory", "closed"],
)
def test_what_others_hold_is_waited_for(
    offers: Inventory, spec: JobSpec, said: str
) -> None:
    cluster = Cluster(node("n1"))
    hold(cluster, "n1", offers)
    check_specs(cluster.world, [spec], {})  # it is not refused
    id = cluster.submit(spec)
    assert (state(cluster, id), why(cluster, id)) == (JobState.QUEUED, said)
    hold(cluster, "n1", inventory())
    assert state(cluster, id) == JobState.STARTING


def test_what_others_leave_is_given() -> None:
    cluster = Cluster(node("n1"))
    hold(cluster, "n1", held(1, taken_cpu_millis=7000))
    id = cluster.submit(gang())
    [seat] = cluster.world.attempts[id].seats
    assert seat.gpus == (0,)
    assert state(cluster, cluster.submit(asks(cpu_millis=2000))) == JobState.QUEUED
    assert state(cluster, cluster.submit(asks(cpu_millis=1000))) == JobState.STARTING


def test_many_nodes_on_which_others_are_are_counted() -> None:
    cluster = Cluster(*(node(f"n{number}") for number in range(3)))
    for number in range(3):
        hold(cluster, f"n{number}", held(1))
    assert (
        why(cluster, cluster.submit(gang(gpus=2)))
        == "programs outside Corral use 3 of 6 GPUs on 3 nodes"
    )


def test_a_fleet_is_not_counted_anew_when_others_come_and_go() -> None:
    cluster, memo = Cluster(node("n1")), Memo()

    def fleet() -> object:
        memo.look(
            Draft(cluster.world, cluster.facts, Now(wall=cluster.wall, serving=0.0))
        )
        return memo.fleet

    before = fleet()
    hold(cluster, "n1", held(2, taken_cpu_millis=1000))
    assert fleet() is before
    hold(cluster, "n1", inventory(3))
    assert fleet() is not before


def test_what_others_hold_is_given_to_nobody() -> None:
    cluster = Cluster(node("n1"))
    cluster.submit(asks(cpu_millis=2000))
    [mine] = cluster.world.allocations.values()
    cluster.world.allocations.clear()
    draft = Draft(cluster.world, cluster.facts, Now(wall=1.0, serving=1.0))
    there = cluster.world.nodes[NodeId("n1")]
    draft.nodes[there.id] = replace(there, inventory=held(taken_cpu_millis=7000))
    draft.allocations[mine.key] = mine
    with pytest.raises(
        InvariantBroken,
        match="cpu_millis of node n1: jobs would use 2000, but only 1000",
    ):
        check(draft)
