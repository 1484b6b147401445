"""When a job may start, by when it must have, and what it is told before its time is
over."""

from dataclasses import replace

import pytest

from corral.control.job_reasons import reason_held
from corral.control.request_checks import check_asked, plan
from corral.domain.attempt import Exit
from corral.domain.cause import Cause
from corral.domain.desired_state import TimeWarning, Version
from corral.domain.errors import Conflict
from corral.domain.ids import JobId
from corral.domain.job import After, JobSpec, On
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase
from corral.domain.receipt import Receipt, ReceiptKind
from corral.domain.requests import Cancel, Resume, Suspend
from corral.domain.time_point import EndWarning, Moment
from corral.reconcile import Now, wanted_of
from tests.worlds import ALICE, SAVING, Cluster, gang, node

CLEAN = Exit(code=0, at=1.0)
SOON = Moment(after_seconds=60.0)


def now_of(cluster: Cluster) -> Now:
    return Now(wall=cluster.wall, serving=cluster.serving)


def why(cluster: Cluster, id: JobId) -> str:
    return reason_held(cluster.world, cluster.world.jobs[id], now_of(cluster)).code


def test_a_job_with_a_begin_is_held_until_then_and_placed_at_once() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(begin=SOON))
    for _ in range(3):
        job = cluster.world.jobs[id]
        assert (job.state, why(cluster, id)) == (JobState.HELD, "BeginTime")
        cluster.tick(seconds=19.0)
    cluster.tick(seconds=3.0)
    assert cluster.world.jobs[id].state == JobState.STARTING


def test_a_begin_that_is_past_holds_nothing() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(begin=Moment(at=cluster.wall - 5.0)))
    assert cluster.world.jobs[id].state == JobState.STARTING


def test_both_the_other_job_and_the_moment_are_waited_for() -> None:
    cluster = Cluster(node("n1"))
    first = cluster.submit(gang())
    id = cluster.submit(gang("next", begin=SOON, after=(After(job=first, on=On.DONE),)))
    assert why(cluster, id) == "Dependency"
    cluster.up(first)
    cluster.end(first, CLEAN)
    assert why(cluster, id) == "BeginTime"
    cluster.tick(seconds=61.0)
    assert cluster.world.jobs[id].state == JobState.STARTING


def test_a_resume_does_not_come_before_the_begin() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(begin=SOON))
    with pytest.raises(Conflict, match="the job begins in 59"):
        check_asked(cluster.world, Resume(job=id), now_of(cluster))
    cluster.request(Suspend(job=id))
    cluster.request(Resume(job=id))
    assert cluster.world.jobs[id].state == JobState.SUSPENDED
    cluster.tick(seconds=61.0)
    cluster.request(Resume(job=id))
    assert cluster.world.jobs[id].state == JobState.STARTING


def test_a_plan_says_when_it_begins() -> None:
    cluster = Cluster(node("n1"))
    [planned] = plan(
        cluster.world, cluster.facts, [gang(begin=SOON)], now_of(cluster), by=ALICE
    )
    assert planned.reason is not None
    assert (planned.seats, planned.reason.code) == ((), "BeginTime")


def late(spec: JobSpec) -> tuple[Cluster, JobId]:
    """A cluster that is full until the job's start_by has come."""
    cluster = Cluster(node("n1"))
    cluster.submit(gang("busy", gpus=2))
    return cluster, cluster.submit(replace(spec, start_by=SOON))


def test_a_job_that_has_not_started_by_its_start_by_fails_with_the_reason_and_a_receipt() -> (
    None
):
    cluster, id = late(gang(gpus=2))
    cluster.tick(seconds=58.0)
    assert cluster.world.jobs[id].state == JobState.QUEUED
    outcome = cluster.tick(seconds=2.0)
    [job] = [one for one in outcome.changes.jobs if one.id == id]
    assert (job.state, job.reason_code) == (JobState.FAILED, "Deadline")
    assert "0 of the 1 node that is large enough have room now" in job.reason
    [receipt] = outcome.changes.receipts
    assert receipt == Receipt(
        job=id, attempt=job.attempt, kind=ReceiptKind.DEADLINE, cause=Cause.REQUEST,
        culprit="start_by",
        evidence=job.reason, steps_lost=None, gpu_seconds_lost=0.0, seen_at=cluster.wall,
    )  # fmt: skip


@pytest.mark.parametrize("state", [JobState.HELD, JobState.SUSPENDED])
def test_what_is_held_or_suspended_ends_then_too(state: JobState) -> None:
    cluster, id = late(gang(gpus=2, begin=Moment(after_seconds=900.0)))
    if state == JobState.SUSPENDED:
        cluster.request(Suspend(job=id))
    assert cluster.world.jobs[id].state == state
    cluster.tick(seconds=61.0)
    assert cluster.world.ended[id] == JobState.FAILED


def test_a_job_has_its_last_chance_in_the_very_tick_of_its_start_by() -> None:
    cluster, id = late(gang(gpus=2))
    busy = next(job for job in cluster.world.jobs if job != id)
    cluster.up(busy)
    cluster.say(busy, Phase.ENDED, exits=((0, CLEAN),))
    cluster.tick(seconds=90.0)
    assert cluster.world.jobs[id].state == JobState.STARTING


def test_a_job_that_has_run_is_never_too_late() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(start_by=SOON, checkpoint=SAVING))
    cluster.up(id)
    cluster.request(Suspend(job=id))
    cluster.end(id, Exit(code=75, at=1.0))
    assert cluster.world.jobs[id].state == JobState.SUSPENDED
    cluster.tick(seconds=1000.0)
    assert cluster.world.jobs[id].state == JobState.SUSPENDED


def notices(cluster: Cluster, id: JobId) -> tuple[TimeWarning, ...]:
    [place] = cluster.world.attempts[id].nodes
    held = [one for one in cluster.world.allocations.values() if one.job == id]
    version = Version(term=1, counter=1)
    return wanted_of(cluster.world, place, held, None, version).notices


def ran(cluster: Cluster, id: JobId, seconds: float) -> None:
    cluster.say(id, Phase.UP, ran_seconds=seconds)
    cluster.tick()


def test_a_job_is_warned_once_before_its_end_and_ends_with_a_receipt() -> None:
    cluster = Cluster(node("n1"))
    warn = EndWarning(signal=10, before_seconds=120.0)
    id = cluster.submit(gang(max_duration_seconds=600.0, warn=warn, checkpoint=SAVING))
    ran(cluster, id, 1.0)
    ran(cluster, id, 479.0)
    assert notices(cluster, id) == ()
    ran(cluster, id, 481.0)
    key = (id, cluster.world.attempts[id].number)
    assert notices(cluster, id) == (TimeWarning(key=key, signal=10, save=True),)
    warned_at = cluster.world.attempts[id].warned_at
    ran(cluster, id, 599.0)
    assert cluster.world.attempts[id].warned_at == warned_at
    ran(cluster, id, 601.0)
    assert cluster.world.jobs[id].state == JobState.STOPPING
    cluster.say(id, Phase.ENDED, exits=((0, Exit(code=75, at=9.0)),))
    outcome = cluster.tick()
    [job] = [one for one in outcome.changes.jobs if one.id == id]
    assert (job.state, job.reason_code) == (JobState.FAILED, "TimeLimit")
    assert [one.kind for one in outcome.changes.receipts] == ["timeout"]


def test_without_a_word_of_its_own_a_save_is_asked_for_and_no_signal_sent() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(max_duration_seconds=600.0, checkpoint=SAVING))
    ran(cluster, id, 1.0)
    ran(cluster, id, 541.0)
    [notice] = notices(cluster, id)
    assert (notice.signal, notice.save) == (None, True)


def test_a_cancel_of_a_held_job_wins_over_its_begin() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(begin=SOON))
    cluster.request(Cancel(job=id))
    cluster.tick(seconds=61.0)
    assert cluster.world.ended[id] == JobState.CANCELLED


def test_a_limit_holds_although_the_ranks_of_one_node_have_ended() -> None:
    cluster = Cluster(node("n1"), node("n2"))
    id = cluster.submit(gang(nodes=2, max_duration_seconds=60.0))
    ran(cluster, id, 5.0)
    first, second = cluster.world.attempts[id].nodes
    ended = ((0, Exit(code=0, at=6.0)),)
    cluster.say(id, Phase.ENDED, on=first, exits=ended, ran_seconds=6.0)
    cluster.say(id, Phase.UP, on=second, ran_seconds=59.0)
    cluster.tick()
    assert cluster.world.jobs[id].state == JobState.RUNNING
    cluster.say(id, Phase.UP, on=second, ran_seconds=61.0)
    cluster.tick()
    assert cluster.world.jobs[id].state == JobState.STOPPING


def test_a_limit_counts_from_the_last_rank_although_it_has_ended_at_once() -> None:
    cluster = Cluster(node("n1"), node("n2"))
    id = cluster.submit(gang(nodes=2, max_duration_seconds=60.0))
    ran(cluster, id, 5.0)
    first, second = cluster.world.attempts[id].nodes
    ended = ((0, Exit(code=0, at=cluster.wall - 1.0)),)
    cluster.say(id, Phase.ENDED, on=first, exits=ended, ran_seconds=1.0)
    cluster.say(id, Phase.UP, on=second, ran_seconds=90.0)
    cluster.tick()
    assert cluster.world.jobs[id].state == JobState.RUNNING
