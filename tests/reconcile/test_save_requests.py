"""Requests about saves: pins reach the nodes, removed saves are not used, and a job goes
back to an older save."""

from dataclasses import replace

from corral.domain.attempt import Retirement, Save
from corral.domain.desired_state import Version
from corral.domain.ids import JobId, NodeId
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase, Progress
from corral.domain.requests import Cancel, ChangeSave, Resume, Suspend
from corral.reconcile import wanted_of
from corral.reconcile.desired_state import launch_of
from tests.reconcile.saving import SAVED, gone, save_of, state
from tests.worlds import SAVING, Cluster, gang, node


def running(*steps: int) -> tuple[Cluster, JobId]:
    """A job that runs and has saved these steps."""
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(checkpoint=replace(SAVING, keep=5)))
    cluster.up(id, step=1)
    cluster.say(
        id,
        Phase.UP,
        progress=Progress(step=max(steps), at=cluster.wall),
        saves=tuple(save_of(cluster, id, step) for step in steps),
    )
    cluster.tick()
    return cluster, id


def suspended(*steps: int) -> tuple[Cluster, JobId]:
    cluster, id = running(*steps)
    cluster.request(Suspend(job=id))
    cluster.tick()
    gone(cluster, id, step=max(steps) + 1)
    assert state(cluster, id) == JobState.SUSPENDED
    return cluster, id


def saves_of(cluster: Cluster, id: JobId) -> dict[int, Save]:
    return {save.step: save for save in cluster.world.saves.get(id, ())}


def change(cluster: Cluster, save: Save, to: str) -> None:
    cluster.request(ChangeSave(save=save, to=to))  # type: ignore[arg-type]
    cluster.tick()


def test_pins_are_sent_to_the_nodes_of_the_job() -> None:
    cluster, id = running(10, 20)
    held = [one for one in cluster.world.allocations.values() if one.job == id]
    version = Version(term=1, counter=1)

    def sent() -> tuple[object, ...]:
        return wanted_of(cluster.world, NodeId("n1"), held, None, version).pinned

    assert sent() == ()
    change(cluster, saves_of(cluster, id)[10], "pin")
    assert sent() == (((id, 1), ((1, 10),)),)
    change(cluster, saves_of(cluster, id)[10], "unpin")
    assert sent() == ()


def test_a_pin_does_not_change_what_was_started() -> None:
    """A launch is the same for the whole life of its attempt."""
    cluster, id = suspended(10, 20)
    cluster.request(Resume(job=id))
    cluster.tick()
    attempt = cluster.world.attempts[id]

    def launched() -> object:
        return launch_of(cluster.world, cluster.world.jobs[id], attempt, NodeId("n1"))

    before = launched()
    change(cluster, saves_of(cluster, id)[10], "pin")
    assert launched() == before


def test_a_removed_save_is_not_resumed_from() -> None:
    cluster, id = suspended(10, 20, 30)
    newest = max(saves_of(cluster, id))
    change(cluster, saves_of(cluster, id)[newest], "rm")
    assert newest not in saves_of(cluster, id)
    cluster.request(Resume(job=id))
    cluster.tick()
    assert cluster.world.attempts[id].resume_step == 30


def test_a_request_does_not_bring_back_what_is_gone() -> None:
    """A save may be quarantined between a request and its grant."""
    cluster, id = running(10, 20)
    old = saves_of(cluster, id)[10]
    change(cluster, old, "rm")
    change(cluster, old, "pin")
    assert 10 not in saves_of(cluster, id), "nor does a node that reports it again"


def test_a_save_of_an_ended_job_is_changed_in_its_record() -> None:
    cluster, id = running(10)
    save = saves_of(cluster, id)[10]
    cluster.request(Cancel(job=id))
    cluster.end(id, SAVED)
    assert id in cluster.world.ended
    cluster.request(ChangeSave(save=save, to="rm"))
    assert cluster.outcome is not None
    changed = list(cluster.outcome.changes.saves)
    assert changed == [replace(save, retired=Retirement.REMOVED)]
    assert id not in cluster.world.retired


def test_a_job_goes_back_and_its_newer_saves_are_not_used() -> None:
    cluster, id = suspended(10, 20, 30)
    cluster.request(Resume(job=id, save=(1, 20)))
    cluster.tick()
    attempt = cluster.world.attempts[id]
    assert (attempt.number, attempt.resume_step) == (2, 20)
    assert sorted(saves_of(cluster, id)) == [10, 20]
    job = cluster.world.jobs[id]
    assert job.best_step == 20, "progress counts from there"
    launch = launch_of(cluster.world, job, attempt, attempt.nodes[0])
    assert [save.step for save in launch.resume] == [20, 10]
    assert launch.passed_over_attempt == 1, "nor are those in the memory of nodes"


def test_a_job_does_not_go_back_while_it_may_still_save() -> None:
    cluster, id = running(10, 20)
    cluster.request(Resume(job=id, save=(1, 10)))
    cluster.tick()
    assert sorted(saves_of(cluster, id)) == [10, 20]


def test_what_a_rank_says_of_pins_does_not_count() -> None:
    cluster, id = running(10)
    forged = replace(save_of(cluster, id, 20), pinned=True, retired=Retirement.REMOVED)
    cluster.say(
        id, Phase.UP, progress=Progress(step=20, at=cluster.wall), saves=(forged,)
    )
    cluster.tick()
    assert saves_of(cluster, id)[20] == replace(forged, pinned=False, retired=None)


def test_a_verified_save_is_recorded_once_with_its_first_time() -> None:
    cluster, id = suspended(10, 20)
    cluster.request(Resume(job=id))
    cluster.tick()
    newest = cluster.world.saves[id][-1]
    for at in (50.0, 60.0):
        report = replace(newest, size_bytes=0, verified_at=at)
        cluster.say(
            id, Phase.UP, progress=Progress(step=21, at=cluster.wall), saves=(report,)
        )
        cluster.tick()
    assert cluster.world.saves[id][-1] == replace(newest, verified_at=50.0)
