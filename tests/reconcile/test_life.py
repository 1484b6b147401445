"""A job's life as reconcile leads it: each test one story of facts."""

from dataclasses import replace

import pytest

from corral.domain.attempt import Exit, Save, SeatState
from corral.domain.cause import Cause
from corral.domain.errors import InvariantBroken
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId
from corral.domain.job import After, CheckpointRule, On, Retry
from corral.domain.job_states import JobState
from corral.domain.node import Liveness
from corral.domain.observed_state import Phase, Progress
from corral.domain.requests import Cancel, Requeue, Resume, SetNode, Suspend
from corral.health.liveness import BOUND_SECONDS
from corral.reconcile import Now
from corral.reconcile.await_node_faults import SETTLES_SECONDS
from corral.reconcile.changeset import Draft
from corral.reconcile.invariants import check
from tests.worlds import SAVING, Cluster, gang, node

CLEAN = Exit(code=0, at=1.0)
CRASH = Exit(code=7, at=1.0)


def trio() -> Cluster:
    return Cluster(node("n1"), node("n2"), node("n3"))


def save_of(id: JobId, cluster: Cluster, step: int) -> Save:
    attempt = cluster.world.attempts[id].number
    path = f"/shared/ckpt/attempt-{attempt}/step-{step}"
    return Save(
        job=id, attempt=attempt, step=step, path=path, manifest_sha256="0" * 64, size_bytes=1,
        seconds=0.1, stall_seconds=0.01, at=cluster.wall,
    )  # fmt: skip


def test_a_gang_is_placed_whole_runs_and_is_done() -> None:
    cluster = trio()
    id = cluster.submit(gang(nodes=2, gpus=2))
    assert cluster.world.jobs[id].state == JobState.STARTING
    assert len(cluster.world.allocations) == 2
    cluster.up(id)
    assert cluster.world.jobs[id].state == JobState.RUNNING
    cluster.end(id, CLEAN)
    assert cluster.world.ended[id] == JobState.DONE
    assert not cluster.world.allocations


def test_a_job_without_budget_fails_with_the_code_of_its_earliest_bad_rank() -> None:
    cluster = trio()
    id = cluster.submit(gang(nodes=2, gpus=2))
    cluster.up(id)
    first, second = cluster.world.attempts[id].nodes
    cluster.say(id, Phase.ENDED, on=second, exits=((1, Exit(code=9, at=5.0)),))
    cluster.say(id, Phase.ENDED, on=first, exits=((0, Exit(code=3, at=4.0)),))
    cluster.tick()
    outcome = cluster.tick(seconds=SETTLES_SECONDS)
    job = next(job for job in outcome.changes.jobs if job.id == id)
    assert (job.state, job.exit_code) == (JobState.FAILED, 3)
    assert "rank 0" in job.reason


def test_gpus_return_only_when_their_ranks_are_seen_gone() -> None:
    cluster = trio()
    id = cluster.submit(gang(nodes=2, gpus=2))
    cluster.up(id)
    bad, good = cluster.world.attempts[id].nodes
    cluster.end(id, CRASH, on=bad)
    states = {one.seat.node: one.state for one in cluster.world.allocations.values()}
    assert states == {good: SeatState.STOPPING}
    assert cluster.world.jobs[id].state == JobState.RECOVERING
    cluster.end(id, Exit(signal=15, at=2.0), on=good)
    assert cluster.world.ended[id] == JobState.FAILED
    assert not cluster.world.allocations


def test_a_dead_node_is_the_clusters_fault_and_the_job_resumes_from_its_newest_save() -> (
    None
):
    cluster = trio()
    id = cluster.submit(gang(nodes=2, gpus=2, checkpoint=SAVING))
    cluster.up(id)
    dead, other = cluster.world.attempts[id].nodes
    cluster.say(
        id, Phase.UP, progress=Progress(step=12), saves=(save_of(id, cluster, 10),)
    )
    cluster.tick()
    cluster.facts.proofs[dead] = "its launcher is gone"
    cluster.mute.add(dead)
    cluster.tick()
    assert cluster.world.jobs[id].state == JobState.RECOVERING
    cluster.say(
        id, Phase.ENDED, on=other, exits=((1, CRASH),), progress=Progress(step=12)
    )
    outcome = cluster.tick()
    job, attempt = cluster.world.jobs[id], cluster.world.attempts[id]
    assert (job.state, job.infra_retries, job.user_retries) == (JobState.STARTING, 1, 0)
    assert (attempt.number, attempt.resume_step) == (2, 10)
    assert dead not in attempt.nodes
    receipt = outcome.changes.receipts[0]
    assert (receipt.cause, receipt.culprit) == (Cause.INFRA, f"node {dead}")
    assert receipt.steps_lost == 2


def test_the_jobs_of_a_dead_node_are_named_until_it_is_alive_again() -> None:
    cluster = trio()
    id = cluster.submit(gang())
    cluster.up(id)
    (dead,) = cluster.world.attempts[id].nodes
    cluster.facts.proofs[dead] = "its launcher is gone"
    cluster.mute.add(dead)
    outcome = cluster.tick()
    lost = next(event for event in outcome.changes.events if event.kind == "node_lost")
    assert (lost.job, lost.node) == (id, dead), "the history of the node has it, too"
    cluster.tick()
    assert cluster.world.jobs[id].attempt == 2
    assert cluster.world.nodes[dead].lost_jobs == (id,)
    cluster.facts.proofs.clear()
    cluster.mute.clear()
    cluster.seen.pop(dead, None)
    cluster.tick()
    assert cluster.world.nodes[dead].liveness == Liveness.ALIVE
    assert cluster.world.nodes[dead].lost_jobs == ()


def test_a_rank_that_dies_of_its_peers_death_is_not_blamed() -> None:
    cluster = trio()
    id = cluster.submit(gang(nodes=2, gpus=2))
    cluster.up(id)
    dead, other = cluster.world.attempts[id].nodes
    cluster.mute.add(dead)
    # its connection was reset before the head knew why
    cluster.end(id, CRASH, on=other)
    assert cluster.world.jobs[id].state == JobState.RECOVERING
    cluster.facts.proofs[dead] = "its launcher is gone"
    cluster.tick()
    assert cluster.world.jobs[id].infra_retries == 1


@pytest.mark.parametrize("rule", [SAVING, None], ids=["replace", "wait"])
def test_silence_past_its_bound_replaces_only_what_may_be_replaced(
    rule: object,
) -> None:
    cluster = trio()
    id = cluster.submit(gang(nodes=1, gpus=2, checkpoint=rule))
    cluster.up(id)
    silent = cluster.world.attempts[id].nodes[0]
    cluster.mute.add(silent)
    cluster.tick(seconds=BOUND_SECONDS - 1)
    assert cluster.world.jobs[id].state == JobState.RUNNING
    cluster.tick(seconds=1.5)
    job = cluster.world.jobs[id]
    if rule is None:
        assert (job.state, job.attempt) == (JobState.RUNNING, 1)
    else:
        assert (job.state, job.attempt) == (JobState.STARTING, 2)
        assert silent not in cluster.world.attempts[id].nodes
        seats = [
            one for one in cluster.world.allocations.values() if one.seat.node == silent
        ]
        assert [one.state for one in seats] == [SeatState.UNREACHABLE]


def test_a_fenced_attempt_that_reappears_is_stopped_and_its_saves_are_refused() -> None:
    cluster = trio()
    id = cluster.submit(gang(gpus=2, checkpoint=SAVING))
    cluster.up(id)
    silent = cluster.world.attempts[id].nodes[0]
    late = save_of(id, cluster, 99)
    cluster.mute.add(silent)
    cluster.tick(seconds=BOUND_SECONDS + 1)
    cluster.mute.discard(silent)
    old = next(iter(cluster.seen[silent].values()))
    cluster.seen[silent][old.key] = replace(old, saves=(late,))
    cluster.tick()
    assert not cluster.world.saves.get(id)
    cluster.seen[silent][old.key] = replace(old, phase=Phase.ENDED)
    cluster.tick()
    held = [
        one for one in cluster.world.allocations.values() if one.seat.node == silent
    ]
    assert held == [], "seen gone: its GPUs are free again"


def test_another_boot_is_proof_that_all_before_it_is_gone() -> None:
    cluster = trio()
    id = cluster.submit(gang(gpus=2))
    cluster.up(id)
    where = cluster.world.attempts[id].nodes[0]
    cluster.nodes[where] = replace(cluster.nodes[where], boot=BootId("another"))
    cluster.seen.clear()
    cluster.tick()
    assert (cluster.world.jobs[id].attempt, cluster.world.jobs[id].infra_retries) == (
        2,
        1,
    )


def test_a_crash_loop_stops_after_three_failures_without_progress() -> None:
    cluster = trio()
    id = cluster.submit(gang(retry=Retry(user=10)))
    for _ in range(3):
        cluster.up(id)
        cluster.end(id, replace(CRASH, at=cluster.wall))
        outcome = cluster.outcome
        cluster.seen.clear()
    assert cluster.world.ended[id] == JobState.FAILED
    assert outcome is not None
    assert "crash loop" in outcome.changes.jobs[0].reason


@pytest.mark.parametrize(
    ("retries", "told"),
    [(1, "; the only retry is used"), (2, "; all 2 retries are used")],
)
def test_used_retries_are_told_in_words(retries: int, told: str) -> None:
    cluster = trio()
    id = cluster.submit(gang(retry=Retry(user=retries)))
    for _ in range(retries + 1):
        cluster.up(id)
        cluster.end(id, replace(CRASH, at=cluster.wall))
        outcome = cluster.outcome
        cluster.seen.clear()
    assert outcome is not None
    assert outcome.changes.jobs[0].reason.endswith(told)


def test_progress_breaks_a_crash_loop() -> None:
    cluster = trio()
    id = cluster.submit(gang(retry=Retry(user=10), checkpoint=SAVING))
    for attempt in range(5):
        cluster.up(id)
        exit = ((0, replace(CRASH, at=cluster.wall)),)
        cluster.say(
            id, Phase.ENDED, exits=exit, progress=Progress(step=10 * attempt + 1)
        )
        cluster.tick()
        cluster.tick(seconds=SETTLES_SECONDS)
        cluster.seen.clear()
    assert cluster.world.jobs[id].user_retries == 5


def test_a_cancel_wins_over_everything_and_is_not_called_done_while_it_runs() -> None:
    cluster = trio()
    id = cluster.submit(gang())
    cluster.up(id)
    cluster.request(Suspend(job=id))
    cluster.request(Cancel(job=id))
    assert cluster.world.jobs[id].state == JobState.STOPPING
    cluster.tick()
    assert cluster.world.jobs[id].state == JobState.STOPPING
    cluster.end(id, CLEAN)
    assert cluster.world.ended[id] == JobState.CANCELLED


def test_suspend_and_resume_keep_the_save_and_charge_nobody() -> None:
    cluster = trio()
    id = cluster.submit(gang(checkpoint=SAVING))
    cluster.up(id)
    cluster.request(Suspend(job=id))
    cluster.say(
        id,
        Phase.ENDED,
        exits=((0, Exit(code=75, at=1.0)),),
        saves=(save_of(id, cluster, 5),),
    )
    cluster.tick()
    assert cluster.world.jobs[id].state == JobState.SUSPENDED
    cluster.request(Resume(job=id))
    job = cluster.world.jobs[id]
    assert (job.state, job.infra_retries, job.user_retries) == (JobState.STARTING, 0, 0)
    assert cluster.world.attempts[id].resume_step == 5


def test_a_job_that_stops_to_be_suspended_goes_on_when_it_is_resumed_meanwhile() -> (
    None
):
    cluster = trio()
    id = cluster.submit(gang(checkpoint=SAVING))
    cluster.up(id)
    cluster.request(Suspend(job=id))
    assert cluster.world.jobs[id].state == JobState.STOPPING
    cluster.request(Resume(job=id))
    assert cluster.world.jobs[id].state == JobState.STOPPING
    saves, ended = (save_of(id, cluster, 5),), ((0, Exit(code=75, at=1.0)),)
    beat = Progress(step=5, at=1.0)
    cluster.say(id, Phase.ENDED, exits=ended, saves=saves, progress=beat)
    outcome = cluster.tick()
    (receipt,) = [one for one in outcome.changes.receipts if one.job == id]
    assert (receipt.kind, receipt.steps_lost) == ("requeue", 0)
    cluster.tick()
    assert cluster.world.attempts[id].number == 2
    assert cluster.world.attempts[id].resume_step == 5


def test_a_job_that_finished_before_it_could_be_suspended_is_done() -> None:
    cluster = trio()
    id = cluster.submit(gang())
    cluster.up(id)
    cluster.request(Suspend(job=id))
    cluster.end(id, CLEAN)
    assert cluster.world.ended[id] == JobState.DONE


def test_a_draining_node_gives_its_jobs_back_and_takes_none() -> None:
    cluster = Cluster(node("n1"), node("n2"))
    id = cluster.submit(gang(gpus=2))
    cluster.up(id)
    drained = cluster.world.attempts[id].nodes[0]
    cluster.request(SetNode(node=drained, to="drain"))
    assert cluster.world.jobs[id].state == JobState.STOPPING
    cluster.end(id, Exit(signal=15, at=1.0))
    cluster.tick()
    assert cluster.world.attempts[id].nodes != (drained,)
    assert cluster.world.attempts[id].number == 2


def test_the_receipt_of_what_begins_anew_says_whether_it_was_asked_for_or_a_node_is_drained() -> (
    None
):
    for kind in ("requeue", "drain"):
        cluster = Cluster(node("n1"), node("n2"))
        id = cluster.submit(gang(gpus=2))
        cluster.up(id)
        on = cluster.world.attempts[id].nodes[0]
        cluster.request(
            Requeue(job=id) if kind == "requeue" else SetNode(node=on, to="drain")
        )
        cluster.say(id, Phase.ENDED, exits=((0, Exit(signal=15, at=1.0)),))
        receipts = cluster.tick().changes.receipts
        assert [(one.kind, one.others) for one in receipts] == [(kind, ())]


def test_a_dependency_releases_or_ends_what_waits_for_it() -> None:
    cluster = trio()
    first = cluster.submit(gang("prepare"))
    good = cluster.submit(gang("train", after=(After(job=first),)))
    bad = cluster.submit(gang("mourn", after=(After(job=first, on=On.FAILED),)))
    assert cluster.world.jobs[good].state == JobState.HELD
    cluster.up(first)
    cluster.end(first, CLEAN)
    assert cluster.world.jobs[good].state in (JobState.QUEUED, JobState.STARTING)
    assert cluster.world.ended[bad] == JobState.CANCELLED


@pytest.mark.parametrize(
    ("exits", "goes_on"), [((CLEAN, CRASH), True), ((CLEAN, CLEAN), False)]
)
def test_of_an_array_one_failure_is_enough_once_all_have_ended(
    exits: tuple[Exit, ...], goes_on: bool
) -> None:
    """As Slurm's afternotok of an array; of those to be done all count."""
    cluster = trio()
    parts = [cluster.submit(gang(f"sweep_{index}")) for index in range(2)]
    told = {on: tuple(After(job=id, on=on, of="sweep") for id in parts) for on in On}
    mourns = cluster.submit(gang("mourns", after=told[On.FAILED]))
    all_done = cluster.submit(gang("cheers", after=told[On.DONE]))
    reason = "the job waits for any of sweep to fail, once all have ended"
    assert cluster.world.jobs[mourns].reason == reason
    for id in parts:
        cluster.up(id)
    cluster.end(parts[1], exits[1])
    assert cluster.world.jobs[mourns].state == JobState.HELD, (
        "one of them has not ended"
    )
    cluster.end(parts[0], exits[0])
    for id, released in ((mourns, goes_on), (all_done, not goes_on)):
        if released:
            assert cluster.world.jobs[id].state in (JobState.QUEUED, JobState.STARTING)
        else:
            assert cluster.world.ended[id] == JobState.CANCELLED


def test_max_duration_ends_a_job_with_a_save_first() -> None:
    cluster = trio()
    id = cluster.submit(gang(max_duration_seconds=60.0, checkpoint=SAVING))
    cluster.up(id)
    cluster.tick(seconds=61)
    assert cluster.world.jobs[id].state == JobState.STOPPING
    cluster.end(id, Exit(code=75, at=1.0))
    assert cluster.world.ended[id] == JobState.FAILED


def test_a_synchronous_gang_that_steps_on_is_alive_silent_node_and_all() -> None:
    cluster = trio()
    id = cluster.submit(gang(nodes=2, gpus=2, checkpoint=SAVING))
    cluster.up(id, step=1)
    silent = cluster.world.attempts[id].nodes[0]
    cluster.mute.add(silent)
    for _ in range(14):
        cluster.facts.stepped[id, AttemptNumber(1)] = cluster.serving
        cluster.tick(seconds=1.0)
    assert cluster.world.jobs[id].state == JobState.RUNNING
    cluster.tick(seconds=BOUND_SECONDS + 1)
    assert cluster.world.jobs[id].state == JobState.RECOVERING, (
        "then it no longer steps"
    )


def test_a_request_is_granted_once_however_often_it_is_read() -> None:
    cluster = trio()
    id = cluster.submit(gang())
    cluster.up(id)
    request = cluster.request(Suspend(job=id))
    cluster.end(id, Exit(code=75, at=1.0))
    cluster.request(Resume(job=id))
    cluster.seen.clear()
    cluster.tick([request])
    assert cluster.world.jobs[id].state == JobState.STARTING


def test_a_gpu_given_twice_is_never_committed() -> None:
    """Two attempts on one GPU, as only a bug in the scheduler could place them."""
    cluster = Cluster(node("n1", 1))
    first = cluster.submit(gang("first"))
    second = cluster.submit(gang("second"))
    draft = Draft(cluster.world, cluster.facts, Now(wall=0.0, serving=0.0))
    check(draft)
    taken = cluster.world.allocations[first, AttemptNumber(1), NodeId("n1")]
    twice = replace(taken, job=second)
    draft.allocations[twice.key] = twice
    draft.put(replace(cluster.world.jobs[second], attempt=AttemptNumber(1)))
    with pytest.raises(InvariantBroken, match="I3"):
        check(draft)


def test_a_path_that_is_not_shared_binds_the_job_to_its_node_and_that_is_said() -> None:
    cluster = trio()
    id = cluster.submit(gang(checkpoint=CheckpointRule(path="/home/alice/ckpt")))
    assert cluster.outcome is not None
    assert [
        one.node for one in cluster.outcome.changes.events if one.kind == "pinned"
    ] == [cluster.world.jobs[id].pinned_to]
    assert cluster.world.jobs[id].pinned_to == cluster.world.attempts[id].nodes[0]


def test_the_digests_of_the_images_that_ran_are_recorded_once_each() -> None:
    cluster = trio()
    id = cluster.submit(gang(nodes=2, gpus=2, image="ubuntu:24.04"))
    first, second = cluster.world.attempts[id].nodes
    digest = f"sha256:{'a' * 64}"
    cluster.say(id, Phase.UP, on=first, image=digest)
    cluster.say(id, Phase.UP, on=second, image="sha256:not-one")
    cluster.tick()
    assert cluster.world.attempts[id].images == (digest,)
    cluster.say(id, Phase.UP, on=second, image=digest)
    cluster.tick()
    assert cluster.world.attempts[id].images == (digest,)
    other = f"sha256:{'b' * 64}"
    cluster.say(id, Phase.UP, on=second, image=other)
    cluster.tick()
    assert cluster.world.attempts[id].images == (digest, other)
