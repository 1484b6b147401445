"""Which jobs are forgotten: the oldest ends first, and never one that is still
needed."""

from dataclasses import replace

import pytest

from corral.domain.attempt import Exit
from corral.domain.desired_state import Version
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId
from corral.domain.job import After
from corral.domain.observed_state import NodeFacts, Phase, Seen
from corral.domain.requests import Cancel
from corral.domain.retention import Retention
from corral.reconcile import Now, reconcile
from corral.reconcile.desired_state import wanted_of
from corral.reconcile.job_retention import MOST_AT_ONCE
from tests.worlds import Cluster, gang, inventory, node

ONE = Retention(jobs=1)


def over(cluster: Cluster, count: int) -> list[JobId]:
    """Jobs that were cancelled, one after the other."""
    ids = [cluster.submit(gang(gpus=9)) for _ in range(count)]
    for id in ids:
        cluster.request(Cancel(job=id))
    return ids


def forgotten(cluster: Cluster, keep: Retention, *spared: JobId) -> list[JobId]:
    now = Now(wall=cluster.wall, serving=cluster.serving)
    outcome = reconcile(
        cluster.world, cluster.facts, (), now, keep=keep, spared=set(spared)
    )
    cluster.world.apply(outcome.changes)
    return list(outcome.changes.forgotten)


def test_the_jobs_that_ended_first_go_until_as_many_are_left_as_are_kept() -> None:
    cluster = Cluster()
    ids = over(cluster, 5)
    assert forgotten(cluster, Retention(jobs=5)) == []
    assert forgotten(cluster, Retention(jobs=3)) == ids[:2]
    assert list(cluster.world.ended) == ids[2:]
    assert [cluster.world.forgot(id) for id in ids] == [True, True, False, False, False]
    assert not cluster.world.forgot(JobId("j99"))


def test_what_is_too_old_goes_and_what_is_not_stays() -> None:
    cluster = Cluster()
    old = over(cluster, 2)
    cluster.wall += 100.0
    over(cluster, 2)
    assert forgotten(cluster, Retention(seconds=200.0)) == []
    assert forgotten(cluster, Retention(seconds=50.0)) == old


def test_no_more_go_at_once_than_a_commit_should_hold() -> None:
    cluster = Cluster()
    ids = over(cluster, MOST_AT_ONCE + 7)
    assert forgotten(cluster, ONE) == ids[:MOST_AT_ONCE]
    assert forgotten(cluster, ONE) == ids[MOST_AT_ONCE:-1]


def test_what_an_unfinished_job_waits_for_stays_and_goes_when_that_is_over() -> None:
    cluster = Cluster()
    first, second, third = over(cluster, 3)
    waiting = cluster.submit(gang(after=(After(job=first), After(job=JobId("j99")))))
    world = cluster.world
    held = cluster.submit(gang(gpus=9))
    world.jobs[held] = replace(
        world.jobs[held], spec=replace(world.jobs[held].spec, after=(After(job=first),))
    )
    assert waiting in world.ended, "j99 is not there and never will be"
    assert forgotten(cluster, ONE) == [second, third, waiting]
    assert forgotten(cluster, ONE) == []
    cluster.request(Cancel(job=held))
    assert forgotten(cluster, ONE) == [first]


def test_what_a_submission_under_way_names_is_spared() -> None:
    cluster = Cluster()
    first, second, _ = over(cluster, 3)
    assert forgotten(cluster, ONE, first) == [second, JobId("j3")]


def test_what_holds_a_node_or_is_still_told_of_stays() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang())
    cluster.up(id)
    cluster.end(id, Exit(code=0))
    over(cluster, 2)
    assert id in cluster.world.ended
    assert id not in forgotten(cluster, ONE), "its node still tells of the attempt"
    cluster.seen.clear()
    cluster.tick()
    assert forgotten(cluster, Retention(seconds=0.1)) == [id]


@pytest.mark.parametrize(
    ("job", "phase", "settled"),
    [
        ("j3", Phase.ENDED, True),
        ("j3_1", Phase.REFUSED, True),
        ("j3", Phase.UP, False),
        ("j8", Phase.ENDED, False),
        ("other", Phase.ENDED, False),
    ],
    ids=["over", "refused", "runs", "never given", "not an id of ours"],
)
def test_a_node_that_comes_back_may_drop_what_is_over_of_a_forgotten_job(
    job: str, phase: Phase, settled: bool
) -> None:
    cluster = Cluster(node("n1"))
    over(cluster, 2)
    key = (JobId(job), AttemptNumber(1))
    heard = NodeFacts(
        node=NodeId("n1"),
        boot=BootId("boot-n1"),
        heard_at=0.0,
        inventory=inventory(),
        seen=(Seen(key=key, phase=phase),),
    )
    word = wanted_of(cluster.world, NodeId("n1"), (), heard, Version(term=1, counter=1))
    assert word.settled == ((key,) if settled else ())
    assert word.stop == ()
