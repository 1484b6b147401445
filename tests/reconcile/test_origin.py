"""A job that starts from the save of another: its saves, its node, and what stays for
it."""

from dataclasses import replace

import pytest

from corral.domain.attempt import Exit
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job import JobSpec, Origin, Retry
from corral.domain.job_states import JobState
from corral.domain.keep_rule import KeepRule
from corral.domain.kept_checkpoints import kept_saves
from corral.domain.observed_state import Phase, Progress
from corral.domain.receipt import Receipt
from corral.domain.requests import Cancel
from corral.domain.retention import Retention
from corral.reconcile import Now, reconcile
from corral.reconcile.desired_state import launch_of
from tests.reconcile.saving import save_of
from tests.worlds import SAVING, Cluster, gang, node


def origin_on(
    name: str, *, job: str = "j1", path: str = "/shared/ckpt/step-500"
) -> Origin:
    return Origin(
        job=JobId(job),
        attempt=AttemptNumber(3),
        step=500,
        path=path,
        manifest_sha256="1" * 64,
        node=NodeId(name),
    )


def begun(origin: Origin, **more: object) -> JobSpec:
    return gang(checkpoint=replace(SAVING, origin=origin), retry=Retry(user=1), **more)  # type: ignore[arg-type]


def resumed(cluster: Cluster, id: JobId) -> list[tuple[str, int]]:
    """The saves that its newest attempt may begin from, the best first."""
    attempt = cluster.world.attempts[id]
    launch = launch_of(cluster.world, cluster.world.jobs[id], attempt, attempt.nodes[0])
    return [(save.job, save.step) for save in launch.resume]


def test_the_save_of_the_other_job_comes_after_all_of_its_own() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(begun(origin_on("n1")))
    assert cluster.world.attempts[id].resume_step == 500
    assert resumed(cluster, id) == [("j1", 500)]
    cluster.up(id, step=510)
    save = save_of(cluster, id, 520)
    cluster.say(id, Phase.ENDED, exits=((0, Exit(signal=9, at=2.0)),), saves=(save,))
    cluster.tick()
    for _ in range(20):
        cluster.tick(seconds=5.0)
        if cluster.world.attempts[id].number == 2:
            break
    assert resumed(cluster, id) == [(id, 520), ("j1", 500)]


def test_steps_are_lost_from_the_save_that_it_began_with() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(begun(origin_on("n1")))
    cluster.up(id, step=510)
    ended, progress = ((0, Exit(code=1, at=2.0)),), Progress(step=510, at=cluster.wall)
    cluster.say(id, Phase.ENDED, exits=ended, progress=progress)
    receipts: list[Receipt] = []
    while not receipts:
        receipts += cluster.tick(seconds=2.0).changes.receipts
    (receipt,) = receipts
    assert (receipt.steps_lost, receipt.resumed_from_step) == (10, 500)


@pytest.mark.parametrize(
    ("path", "node_of_it", "pinned"),
    [("/shared/ckpt/step-500", "n2", None), ("/home/alice/step-500", "n2", "n2")],
)
def test_a_save_on_one_nodes_disk_binds_the_job_to_that_node(
    path: str, node_of_it: str, pinned: str | None
) -> None:
    cluster = Cluster(node("n1"), node("n2"))
    id = cluster.submit(begun(origin_on(node_of_it, path=path)))
    job = cluster.world.jobs[id]
    assert job.state == JobState.STARTING
    assert job.pinned_to == pinned
    assert pinned in (None, *cluster.world.attempts[id].nodes)


def test_the_other_job_is_kept_until_the_one_that_starts_from_it_is_over() -> None:
    cluster = Cluster()
    other, more, last = (cluster.submit(gang(gpus=9)) for _ in range(3))
    for id in (other, more, last):
        cluster.request(Cancel(job=id))
    waits = cluster.submit(begun(origin_on("n1", job=other), gpus=9))

    def forgotten() -> list[JobId]:
        now = Now(wall=cluster.wall, serving=cluster.serving)
        outcome = reconcile(
            cluster.world, cluster.facts, (), now, keep=Retention(jobs=1)
        )
        cluster.world.apply(outcome.changes)
        return list(outcome.changes.forgotten)

    assert forgotten() == [more, last]
    cluster.request(Cancel(job=waits))
    assert forgotten() == [other]


def test_the_newest_saves_of_the_newest_attempt_are_kept() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(checkpoint=SAVING))
    first = [save_of(cluster, id, step) for step in (10, 20, 30)]
    second = [
        replace(save_of(cluster, id, step), attempt=AttemptNumber(2))
        for step in (25, 35)
    ]
    broken = replace(second[1], step=45, quarantined="a bit")
    kept = kept_saves([*first, *second, broken], KeepRule(last=3))
    assert [(save.attempt, save.step) for save in kept] == [(2, 35), (2, 25), (1, 30)]
