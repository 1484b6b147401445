"""A node where the jobs of several users begin to fail is avoided, listed, and
returned."""

from dataclasses import replace

from corral.domain.attempt import Exit
from corral.domain.ids import NodeId, UserName
from corral.domain.ids import Sequence as Order
from corral.domain.job import Retry
from corral.domain.node_fault import Restriction
from corral.domain.node_signal import SignalKind
from corral.domain.requests import Cancel, SetNode, StoredRequest, Submit
from corral.store.row_codec import NODE
from tests.worlds import Cluster, gang, node

BAD, GOOD = NodeId("n0"), NodeId("n1")
USERS = ("ada", "bob", "eve", "joe")


def run_one(cluster: Cluster, user: str, name: str) -> NodeId:
    """A job of the user that fails on n0 and is done on any other node. Where it ran
    first."""
    number = cluster.world.granted + 1
    spec = gang(name, gpus=2, retry=Retry(user=3))
    asked = Submit(specs=(spec,), key=f"{number}")
    by, at = UserName(user), cluster.wall
    cluster.tick([StoredRequest(sequence=Order(number), by=by, at=at, asked=asked)])
    job = next(
        id for id in cluster.world.jobs if cluster.world.jobs[id].spec.name == name
    )
    first = None
    while job in cluster.world.jobs:
        where = cluster.world.attempts[job].nodes[0]
        first = first or where
        cluster.up(job)
        cluster.end(job, Exit(code=1 if where == BAD else 0, at=cluster.wall))
        cluster.tick()
    assert first is not None
    return first


def blamed() -> Cluster:
    cluster = Cluster(node("n0"), node("n1"))
    for number in range(24):
        run_one(cluster, USERS[number % 4], f"train{number}")
        if cluster.world.nodes[BAD].conditions:
            return cluster
    raise AssertionError(cluster.world.nodes[BAD].record)


def test_a_node_that_fails_the_jobs_of_several_users_is_blamed_with_its_numbers() -> (
    None
):
    cluster = blamed()
    (condition,) = cluster.world.nodes[BAD].conditions
    assert (condition.kind, condition.restriction) == (
        SignalKind.LEMON,
        Restriction.AVOID,
    )
    assert "users failed first on this node" in condition.text
    assert "chance" in condition.text
    assert cluster.world.nodes[BAD].is_to_be_tested
    assert not cluster.world.nodes[GOOD].conditions
    assert not cluster.world.nodes[BAD].cordoned


def test_who_is_blamed_is_taken_last_by_everybody() -> None:
    cluster = blamed()
    assert run_one(cluster, "new", "next") == GOOD


def test_blame_outlives_the_head() -> None:
    kept = blamed().world.nodes[BAD]
    record, crc = NODE.write(kept)
    assert NODE.read(record, crc) == kept


def test_a_passed_check_returns_it_and_what_was_held_against_it_is_gone() -> None:
    cluster = blamed()
    cluster.notice("n0", SignalKind.CHECK, 0, device="matmul")
    cluster.tick()
    assert cluster.world.nodes[BAD].restriction == Restriction.OPEN
    assert cluster.world.nodes[BAD].record.users == ()


def test_a_failed_check_closes_it() -> None:
    cluster = blamed()
    cluster.notice("n0", SignalKind.CHECK, 1, device="matmul")
    cluster.tick()
    assert cluster.world.nodes[BAD].cordoned


def test_a_persons_word_returns_it_too() -> None:
    cluster = blamed()
    cluster.request(SetNode(node=BAD, to="clear"))
    assert cluster.world.nodes[BAD].restriction == Restriction.OPEN
    assert cluster.world.nodes[BAD].record.users == ()


def test_a_fault_of_the_cluster_is_no_evidence_against_a_node() -> None:
    cluster = Cluster(node("n0"))
    for number in range(8):
        job = cluster.submit(gang(f"t{number}", gpus=2))
        cluster.up(job)
        cluster.notice("n0", SignalKind.XID, 94, gpu=0)
        cluster.end(job, Exit(code=1, at=cluster.wall))
        cluster.request(Cancel(job=job))
        cluster.tick()
        cluster.world.nodes[BAD] = replace(cluster.world.nodes[BAD], conditions=())
    assert cluster.world.nodes[BAD].record.failures == 0


def test_a_job_that_fails_on_a_node_again_counts_there_once() -> None:
    cluster = Cluster(node("n0"))
    job = cluster.submit(gang(gpus=2, retry=Retry(user=3)))
    for _ in range(2):
        cluster.up(job)
        cluster.end(job, Exit(code=1, at=cluster.wall))
        cluster.tick()
    (record,) = cluster.world.nodes[BAD].record.users
    assert (record.tries, record.failures) == (2, 1)
