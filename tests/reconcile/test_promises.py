"""A promised start in the head's own rows: told, kept, and given up only where it must be."""

from dataclasses import replace

from corral.domain.ids import JobId, QueueName
from corral.domain.job import JobSpec
from corral.domain.moves import JobState
from corral.domain.queue import Policy, Queue
from corral.domain.wishes import SetQueues
from corral.reconcile.promises import GONE_SECONDS, START_SECONDS
from tests.worlds import Cluster, gang, node

EASY = QueueName("easy")


def job(name: str, limit: float | None, **more: object) -> JobSpec:
    spec = gang(name, **more)  # type: ignore[arg-type]
    return replace(spec, queue=EASY, max_duration_seconds=limit, grace_seconds=5.0)


def promised() -> tuple[Cluster, JobId, float]:
    """First holds one of two nodes for at most 1000 s; wide wants both of them."""
    cluster = Cluster(node("n1"), node("n2"))
    cluster.wish(SetQueues(queues=(Queue(name=EASY, policy=Policy.BACKFILL),), whole=False))
    first = cluster.submit(job("first", 1000.0, gpus=2))
    cluster.up(first)
    wide = cluster.submit(job("wide", 50.0, nodes=2, gpus=2))
    start = cluster.world.reservations[wide].latest_start
    assert start is not None
    return cluster, wide, start


def test_the_start_is_the_limit_of_who_runs_and_the_job_is_told() -> None:
    cluster, wide, start = promised()
    assert abs(start - (cluster.wall + 1000.0 + 5.0 + GONE_SECONDS)) < 5.0
    assert cluster.outcome is not None
    assert cluster.outcome.reasons is not None
    [reason] = [why for id, why in cluster.outcome.reasons.items() if id == wide]
    assert reason.code == "Promised"
    assert "at the latest, when first (j2) reaches its limit" in reason.sentence


def test_who_has_gone_by_then_starts_and_nobody_else_and_the_promise_stays() -> None:
    cluster, wide, start = promised()
    held = START_SECONDS + 5.0 + GONE_SECONDS
    short = cluster.submit(job("short", start - cluster.wall - held - 10.0))
    long = cluster.submit(job("long", start - cluster.wall - held + 10.0))
    endless = cluster.submit(job("endless", None))
    states = {id: cluster.world.jobs[id].state for id in (short, long, endless, wide)}
    assert states == {
        short: JobState.STARTING, long: JobState.QUEUED,
        endless: JobState.QUEUED, wide: JobState.QUEUED,
    }  # fmt: skip
    assert cluster.world.reservations[wide].latest_start == start


def test_a_promise_on_a_node_that_takes_no_more_work_is_given_up() -> None:
    cluster, wide, _ = promised()
    cluster.world.nodes = {
        id: replace(one, cordoned=id == "n2") for id, one in cluster.world.nodes.items()
    }
    cluster.tick()
    assert wide not in cluster.world.reservations
