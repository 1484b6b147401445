"""What must hold when something else goes wrong in the same tick."""

import pytest

from corral.domain.attempt import Exit, SeatState
from corral.domain.cause import Cause
from corral.domain.ids import JobId, NodeId
from corral.domain.job import After, On, Retry
from corral.domain.job_states import JobState
from corral.domain.node import Liveness
from corral.domain.observed_state import Phase
from corral.domain.requests import Cancel, SetNode, Submit, Suspend
from corral.health.liveness import BOUND_SECONDS
from corral.reconcile.attempts import see_attempt
from tests.reconcile.saving import save_of
from tests.worlds import SAVING, Cluster, gang, node


def trio() -> Cluster:
    return Cluster(node("n1"), node("n2"), node("n3"))


def break_step_on(id: JobId, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every look at the job fail, after it has begun to write."""

    def faulty(draft: object, job: object) -> None:
        see_attempt(draft, job)  # type: ignore[arg-type]
        if getattr(job, "id", None) == id:
            raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr("corral.reconcile.reconcile_pass.see_attempt", faulty)


def test_a_cancel_is_granted_though_a_bug_is_met_on_the_job_in_the_same_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = trio()
    id = cluster.submit(gang())
    cluster.up(id)
    break_step_on(id, monkeypatch)
    cluster.request(Cancel(job=id))
    assert cluster.world.jobs[id].state == JobState.STOPPING


def test_of_a_step_that_fails_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = trio()
    id = cluster.submit(gang(checkpoint=SAVING))
    cluster.up(id)
    break_step_on(id, monkeypatch)
    cluster.say(
        id, Phase.ENDED, saves=(save_of(cluster, id, 1),), trouble="the disk is gone"
    )
    changes = cluster.tick().changes
    rows = (
        changes.jobs,
        changes.attempts,
        changes.saves,
        changes.allocations,
        changes.events,
    )
    assert not any(rows)


def test_a_request_that_cannot_be_granted_takes_no_other_with_it() -> None:
    cluster = trio()
    bad = cluster.request(
        Submit(specs=(gang("first"), gang(after=(After(job=JobId("@x")),))), key="")
    )
    assert cluster.world.granted == bad.sequence
    assert not cluster.world.jobs, "a submission is taken in whole or not at all"
    assert cluster.outcome is not None
    assert [str(id) for id, _ in cluster.outcome.bugs] == ["j1"]
    id = cluster.submit(gang("good"))
    assert cluster.world.jobs[id].state == JobState.STARTING


def test_a_suspension_outlasts_a_drain_that_is_under_way() -> None:
    cluster = trio()
    id = cluster.submit(gang())
    cluster.up(id)
    where = cluster.world.attempts[id].nodes[0]
    cluster.request(SetNode(node=where, to="drain"))
    cluster.tick()
    assert cluster.world.jobs[id].state == JobState.STOPPING
    cluster.request(Suspend(job=id))
    cluster.say(id, Phase.ENDED, trouble="stopped")
    cluster.tick()
    assert cluster.world.jobs[id].state == JobState.SUSPENDED


def test_the_receipt_of_a_lost_node_says_how_many_steps_went_with_it() -> None:
    cluster = trio()
    id = cluster.submit(gang(checkpoint=SAVING))
    cluster.up(id, step=500)
    where = cluster.world.attempts[id].nodes[0]
    cluster.mute.add(where)
    cluster.facts.proofs[where] = "its agent and its ranks are gone"
    receipts = cluster.tick().changes.receipts
    assert [receipt.steps_lost for receipt in receipts] == [500]


def test_nodes_that_fall_silent_one_by_one_are_judged_alone_and_together_as_one_fault() -> (
    None
):
    cluster = Cluster(*(node(f"n{i:02}") for i in range(30)))
    for i in range(3):
        cluster.mute.add(NodeId(f"n{i:02}"))
        for _ in range(14):
            cluster.tick()
    silent = [
        one for one in cluster.world.nodes.values() if one.liveness == Liveness.SILENT
    ]
    assert len(silent) == 3
    assert not any("at the same time" in one.why for one in silent)
    cluster.mute |= {NodeId(f"n{i:02}") for i in range(10, 14)}
    for _ in range(8):
        cluster.tick()
    late = [cluster.world.nodes[NodeId(f"n{i:02}")] for i in range(10, 14)]
    assert all("at the same time" in one.why for one in late)


def test_each_of_many_dead_nodes_gives_back_what_it_held_once() -> None:
    cluster = Cluster(*(node(f"n{i}") for i in range(6)))
    ids = [cluster.submit(gang(f"g{i}", gpus=2)) for i in range(6)]
    for id in ids:
        cluster.up(id)
    dead = {cluster.world.attempts[id].nodes[0] for id in ids[:3]}
    cluster.mute |= dead
    cluster.facts.proofs.update(dict.fromkeys(dead, "power is off"))
    changes = cluster.tick(seconds=BOUND_SECONDS / 10).changes
    released = [one for one in changes.allocations if one.state == SeatState.RELEASED]
    assert {one.seat.node for one in released} == dead
    assert len(released) == 3
    assert not cluster.tick().changes.allocations


def test_a_drained_job_that_exits_0_when_told_to_stop_is_queued_again() -> None:
    cluster = trio()
    id = cluster.submit(gang())
    cluster.up(id)
    cluster.request(SetNode(node=cluster.world.attempts[id].nodes[0], to="drain"))
    cluster.tick()
    assert cluster.world.jobs[id].state == JobState.STOPPING
    cluster.end(id, Exit(code=0, at=cluster.wall + 1.0))
    assert id in cluster.world.jobs


def test_a_job_after_another_that_started_is_released_though_that_one_has_failed_since() -> (
    None
):
    cluster = trio()
    first = cluster.submit(gang())
    cluster.up(first)
    cluster.end(first, Exit(code=1, at=1.0))
    assert cluster.world.ended[first] == JobState.FAILED
    second = cluster.submit(gang(after=(After(job=first, on=On.STARTED),)))
    assert cluster.world.state_of(second) != JobState.CANCELLED


def test_an_attempt_that_is_retried_in_the_tick_of_its_end_is_recorded_with_its_end() -> (
    None
):
    cluster = trio()
    id = cluster.submit(gang(gpus=0, retry=Retry(user=1)))
    cluster.up(id)
    cluster.end(id, Exit(code=3, at=cluster.wall))
    assert cluster.outcome is not None
    first, second = cluster.outcome.changes.attempts
    assert (first.number, first.cause, first.exit_code) == (1, Cause.USER, 3)
    assert first.ended_at is not None
    assert (second.number, second.ended_at) == (2, None)
    assert cluster.world.attempts[id].number == 2


@pytest.mark.parametrize(("stop", "kinds"), [(Cancel, []), (Suspend, ["failure"])])
def test_who_stops_a_failed_job_is_named_first_and_the_failure_keeps_its_culprit(
    stop: type[Cancel] | type[Suspend], kinds: list[str]
) -> None:
    cluster = trio()
    id = cluster.submit(gang(nodes=2, gpus=2, retry=Retry(user=3)))
    cluster.up(id)
    first, second = cluster.world.attempts[id].nodes
    cluster.end(id, Exit(code=3), on=first)
    assert cluster.world.jobs[id].state == JobState.RECOVERING
    cluster.request(stop(job=id))
    assert cluster.world.jobs[id].reason == "requested by alice"
    cluster.say(id, Phase.ENDED, on=second, exits=((1, Exit(signal=15)),))
    changes = cluster.tick().changes
    assert [job.reason for job in changes.jobs] == ["requested by alice"]
    assert [one.kind for one in changes.receipts] == kinds
    assert all(one.culprit == f"rank 0 on {first}" for one in changes.receipts)


def test_what_ranks_said_of_their_end_is_its_reason_and_not_their_exit_code_alone() -> (
    None
):
    cluster = trio()
    id = cluster.submit(gang(nodes=1))
    cluster.up(id)
    cluster.say(
        id, Phase.ENDED, exits=((0, Exit(code=3, at=4.0)),), trouble="there is no Ray in it",
        trouble_is_infra=False,
    )  # fmt: skip
    changes = cluster.tick().changes
    job = next(job for job in changes.jobs if job.id == id)
    attempt = changes.attempts[-1]
    assert (job.state, job.exit_code) == (JobState.FAILED, 3)
    assert "there is no Ray in it" in job.reason
    assert (attempt.cause, attempt.evidence) == (Cause.USER, "there is no Ray in it")
