"""Jobs that save are moved so that a waiting one fits: within a budget, and both are
told."""

import re

import pytest

from corral.domain.attempt import Exit
from corral.domain.ids import JobId, QueueName
from corral.domain.job import CheckpointRule
from corral.domain.job_states import JobState, StopWhy
from corral.domain.observed_state import Phase, Progress
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.receipt import ReceiptKind
from corral.domain.relocation import RelocationRule
from corral.domain.requests import Cancel, SetQueues, Suspend
from tests.reconcile.saving import gone, save_of, state
from tests.worlds import SAVING, Cluster, gang, node

DONE = Exit(code=0, at=1.0)
MIN_RUNTIME = 30.0
DEFAULT = QueueName("default")


def rules(
    cluster: Cluster, *, gpu_hours: float | None = 10.0, pause: float = 600.0
) -> None:
    rule = None
    if gpu_hours is not None:
        rule = RelocationRule(gpu_hours=gpu_hours, pause_seconds=pause)
    queue = Queue(name=DEFAULT, nominal=((ANY_TYPE, 8000),))
    cluster.request(
        SetQueues(
            queues=(queue,),
            whole=True,
            min_runtime_seconds=MIN_RUNTIME,
            relocation=rule,
        )
    )


def run(
    cluster: Cluster, name: str, *, gpus: int = 2, saves: bool = True, **more: object
) -> JobId:
    rule = SAVING if saves else None
    spec = gang(name, gpus=gpus, checkpoint=rule, grace_seconds=2.0, **more)  # type: ignore[arg-type]
    id = cluster.submit(spec)
    assert state(cluster, id) == JobState.STARTING
    cluster.up(id, step=1)
    return id


def saves_now(cluster: Cluster, id: JobId, step: int) -> None:
    cluster.say(
        id, Phase.UP, progress=Progress(step=step, at=cluster.wall),
        saves=(save_of(cluster, id, step),),
    )  # fmt: skip
    cluster.tick()


def nodes_of(cluster: Cluster, id: JobId) -> list[str]:
    return list(cluster.world.attempts[id].nodes)


def why(cluster: Cluster, id: JobId) -> str:
    assert cluster.outcome is not None
    assert cluster.outcome.reasons is not None
    return cluster.outcome.reasons[id].sentence


def parted(**more: object) -> tuple[Cluster, JobId, JobId]:
    """Two nodes of four GPUs, half of each in use: there is room for four more on
    none."""
    cluster = Cluster(node("n1", gpus=4), node("n2", gpus=4))
    rules(cluster, **more)  # type: ignore[arg-type]
    left = run(cluster, "left")
    between = run(cluster, "between")
    right = run(cluster, "right")
    cluster.end(between, DONE)
    assert (nodes_of(cluster, left), nodes_of(cluster, right)) == (["n1"], ["n2"])
    cluster.tick(seconds=2 * MIN_RUNTIME)
    return cluster, left, right


def patient(cluster: Cluster, id: JobId, *, seconds: float = 100.0) -> None:
    """It has waited for as long as anything here costs."""
    cluster.tick(seconds=seconds)


def test_who_loses_least_is_moved_starts_elsewhere_at_once_and_both_are_told() -> None:
    cluster, left, right = parted()
    saves_now(cluster, left, 40)
    saves_now(cluster, right, 40)
    cluster.tick(seconds=50.0)
    saves_now(cluster, right, 90)
    submitted = cluster.world.jobs[right].submitted
    big = cluster.submit(gang("big", gpus=4))
    assert state(cluster, right) == JobState.RUNNING, (
        "it has not waited for what that costs"
    )
    said = why(cluster, big)
    assert (
        f"moving right ({right}) would make room; it happens when the job has waited"
        in said
    )
    costs = r"as long as the move costs, now \d+(\.\d s| min): "
    assert re.search(costs + r"at 1970-01-12 [\d:]+ UTC at the earliest", said), said
    patient(cluster, big)
    moved = cluster.world.jobs[right]
    assert (moved.state, moved.why) == (JobState.STOPPING, StopWhy.PREEMPT)
    assert state(cluster, left) == JobState.RUNNING
    assert "right (j4) saves and is moved to n1 to make room" in why(cluster, big)

    gone(cluster, right, step=95)
    assert (state(cluster, big), nodes_of(cluster, big)) == (JobState.STARTING, ["n2"])
    assert (state(cluster, right), nodes_of(cluster, right)) == (
        JobState.STARTING,
        ["n1"],
    )
    back, attempt = cluster.world.jobs[right], cluster.world.attempts[right]
    assert (back.submitted, back.infra_retries, back.user_retries) == (submitted, 0, 0)
    assert (attempt.number, attempt.resume_step) == (2, 95)
    assert cluster.world.reservations == {}
    assert cluster.outcome is not None
    receipts = {one.kind: one for one in cluster.outcome.changes.receipts}
    given, taken = receipts[ReceiptKind.RELOCATION], receipts[ReceiptKind.TAKING]
    assert (given.others, taken.others) == ((big,), (right,))
    assert given.text.startswith(
        f"moved to n1 to make room for big ({big}) of queue default; saved at step 95, lost no work"
    )
    assert taken.text.startswith(
        f"right ({right}) of queue default was moved to n1 to make room (saved at step 95"
    )
    assert [one.job for one in cluster.world.relocations.values()] == [right]


def test_nobody_is_moved_where_no_operator_has_allowed_it() -> None:
    cluster, left, right = parted(gpu_hours=None)
    big = cluster.submit(gang("big", gpus=4))
    patient(cluster, big)
    assert {state(cluster, id) for id in (left, right)} == {JobState.RUNNING}


def test_what_costs_more_than_the_budget_has_left_is_not_done_and_told() -> None:
    cluster, left, right = parted(gpu_hours=0.01)
    big = cluster.submit(gang("big", gpus=4))
    patient(cluster, big)
    assert {state(cluster, id) for id in (left, right)} == {JobState.RUNNING}
    said = (
        "costs more than is left of the budget for relocations: 0.01 of 0.01 GPU-hours"
    )
    assert said in why(cluster, big)


@pytest.mark.parametrize(
    "spared", ["saves not", "alone", "dearer", "within its minimum run time"]
)
def test_some_are_never_moved(spared: str) -> None:
    more: dict[str, object] = {}
    cluster = Cluster(node("n1", gpus=4), node("n2", gpus=4))
    rules(cluster)
    if spared == "saves not":
        more = {"saves": False}
    if spared == "dearer":
        more = {"priority": 100}
    if spared == "alone":
        path = CheckpointRule(path="/own/disk")  # no other node sees it
        left, between = (cluster.submit(gang(n, gpus=2, checkpoint=path)) for n in "ab")
        right = cluster.submit(gang("c", gpus=2, checkpoint=path))
        for id in (left, between, right):
            cluster.up(id, step=1)
    else:
        left, between, right = (run(cluster, n, **more) for n in "abc")  # type: ignore[arg-type]
    cluster.end(between, DONE)
    if spared == "within its minimum run time":
        big = cluster.submit(gang("big", gpus=4))
        cluster.tick(seconds=MIN_RUNTIME / 2)
    else:
        cluster.tick(seconds=2 * MIN_RUNTIME)
        big = cluster.submit(gang("big", gpus=4))
        patient(cluster, big)
    assert {state(cluster, id) for id in (left, right)} == {JobState.RUNNING}
    assert state(cluster, big) == JobState.QUEUED


def test_a_job_is_moved_once_within_the_pause() -> None:
    cluster, left, right = parted(pause=400.0)
    saves_now(cluster, right, 5)
    big = cluster.submit(gang("big", gpus=4))
    patient(cluster, big, seconds=150.0)
    gone(cluster, right, step=95)
    cluster.up(big)
    cluster.up(right, step=95)
    cluster.end(left, DONE)
    cluster.end(big, DONE)
    third = run(cluster, "third", saves=False)
    fourth = run(cluster, "fourth", saves=False)
    assert nodes_of(cluster, third) == nodes_of(cluster, right) == ["n1"]
    cluster.end(third, DONE)
    again = cluster.submit(gang("again", gpus=4))
    patient(cluster, again, seconds=300.0)
    assert state(cluster, right) == JobState.RUNNING, (
        f"{fourth} is in the way, {right} was moved"
    )
    saves_now(cluster, right, 600)
    cluster.tick(seconds=200.0)
    saves_now(cluster, right, 800)
    assert state(cluster, right) == JobState.STOPPING, "the pause is over"


def test_one_that_is_on_the_way_returns_when_it_is_wanted_no_more() -> None:
    cluster, _, right = parted()
    saves_now(cluster, right, 5)
    big = cluster.submit(gang("big", gpus=4))
    patient(cluster, big)
    cluster.request(Cancel(job=big))
    assert cluster.world.reservations == {}
    gone(cluster, right, step=95)
    assert state(cluster, right) == JobState.STARTING
    assert cluster.world.attempts[right].resume_step == 95


def test_one_that_its_user_suspends_meanwhile_is_not_started_elsewhere() -> None:
    cluster, _, right = parted()
    saves_now(cluster, right, 5)
    big = cluster.submit(gang("big", gpus=4))
    patient(cluster, big)
    cluster.request(Suspend(job=right))
    gone(cluster, right, step=95)
    assert state(cluster, right) == JobState.SUSPENDED
    assert state(cluster, big) == JobState.STARTING
    assert cluster.world.reservations == {}
    assert cluster.world.relocations == {}


def test_nobody_else_gets_the_place_that_one_is_moved_to() -> None:
    cluster, left, right = parted()
    saves_now(cluster, right, 5)
    big = cluster.submit(gang("big", gpus=4))
    patient(cluster, big)
    small = cluster.submit(gang("small", gpus=2, priority=100))
    assert state(cluster, small) == JobState.QUEUED
    gone(cluster, right, step=95)
    assert {state(cluster, id) for id in (big, right)} == {JobState.STARTING}
    assert state(cluster, small) == JobState.QUEUED
    assert nodes_of(cluster, right) == nodes_of(cluster, left)


def test_a_second_gang_is_helped_when_it_is_known_what_the_first_has_cost() -> None:
    cluster = Cluster(*(node(f"n{place}", gpus=4) for place in range(4)))
    rules(cluster)
    jobs = [run(cluster, f"job{place}") for place in range(8)]
    for id in jobs[1::2]:
        cluster.end(id, DONE)
    cluster.tick(seconds=2 * MIN_RUNTIME)
    bigs = [cluster.submit(gang(name, gpus=4)) for name in ("one", "two")]
    cluster.tick(seconds=300.0)
    stopping = [id for id in jobs if cluster.world.state_of(id) == JobState.STOPPING]
    assert len(stopping) == 1
    cluster.tick(seconds=300.0)
    assert sum(cluster.world.state_of(id) == JobState.STOPPING for id in jobs) == 1
    gone(cluster, stopping[0], step=95)
    cluster.tick(seconds=300.0)
    [second] = [id for id in jobs if cluster.world.state_of(id) == JobState.STOPPING]
    gone(cluster, second, step=95)
    assert {state(cluster, id) for id in bigs} == {JobState.STARTING}
