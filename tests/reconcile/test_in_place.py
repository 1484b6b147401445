"""A gang of which only ranks failed begins again on its seats in the same commit; who
pays is decided within two seconds, while it runs."""

from dataclasses import replace
from typing import Any, Literal

import pytest

from corral.domain.attempt import Attempt, Exit, SeatState
from corral.domain.cause import Cause
from corral.domain.elastic import Elastic
from corral.domain.failure_class import FailureKind
from corral.domain.hang import HangAct
from corral.domain.hang_record import HangRecord
from corral.domain.ids import AttemptNumber, NodeId
from corral.domain.job import Job, Retry
from corral.domain.job_states import JobState
from corral.domain.node_signal import SignalKind
from corral.domain.observed_state import Phase, Progress, Seen
from corral.domain.reason_code import ReasonCode
from corral.domain.requests import Cancel, Requeue, SetNode
from corral.domain.usage import Reservation
from corral.reconcile.attempts import EXIT_STOPPED
from corral.reconcile.await_node_faults import SETTLES_SECONDS
from tests.worlds import SAVING, Cluster, gang, node

KILLED = 9


class Gang:
    """A running gang of two nodes that has made steps, and a third node that is
    free."""

    def __init__(self, *, retry: Retry | None = None, **spec: Any) -> None:
        self.cluster = Cluster(node("n1"), node("n2"), node("n3"))
        asked = {"nodes": 2, "gpus": 2, "retry": retry or Retry(user=3), **spec}
        self.id = self.cluster.submit(gang(**asked))
        self.run_to(20)

    def run_to(self, step: int) -> None:
        self.cluster.up(self.id, step=step)

    def fail(self, *, signal: int = KILLED, code: int | None = None) -> None:
        """One rank fails, and the other is stopped a tick later."""
        self.first_fails(signal=signal, code=code)
        self.second_ends()

    def first_fails(self, *, signal: int = KILLED, code: int | None = None) -> None:
        exit = Exit(
            signal=None if code is not None else signal, code=code, at=self.cluster.wall
        )
        self._end(self.attempt.nodes[0], 0, exit)

    def second_ends(self) -> None:
        self._end(self.attempt.nodes[1], 1, Exit(signal=15, at=self.cluster.wall + 0.2))

    def say_traceback(self, node: NodeId) -> None:
        """Let the node report steps, and the error that its rank has printed."""
        key = (self.id, self.attempt.number)
        tail = "Traceback (most recent call last):\nValueError: no such batch\n"
        rank = self.attempt.nodes.index(node)
        self.cluster.seen.setdefault(node, {})[key] = Seen(
            key=key,
            phase=Phase.UP,
            progress=Progress(step=30),
            tails=((rank, tail),) if rank == 0 else (),
        )

    def _end(self, node: NodeId, rank: int, exit: Exit) -> None:
        attempt = self.attempt
        seen = self.cluster.seen[node][self.id, attempt.number]
        self.cluster.seen[node][self.id, attempt.number] = replace(
            seen, phase=Phase.ENDED, exits=((rank, exit),)
        )
        self.cluster.tick()

    def settle(self) -> None:
        for _ in range(int(SETTLES_SECONDS / 0.5) + 1):
            self.cluster.tick()

    @property
    def job(self) -> Job:
        return self.cluster.world.jobs[self.id]

    @property
    def attempt(self) -> Attempt:
        return self.cluster.world.attempts[self.id]

    def states(self) -> list[JobState]:
        """Return the states of the newest commit's rows of the job."""
        outcome = self.cluster.outcome
        rows = outcome.changes.jobs if outcome is not None else ()
        return [job.state for job in rows if job.id == self.id]


def test_the_next_attempt_begins_on_the_same_seats_in_one_commit() -> None:
    run = Gang()
    first = run.attempt
    run.fail()
    outcome = run.cluster.outcome
    assert outcome is not None
    assert (run.job.state, run.attempt.number) == (JobState.STARTING, 2)
    assert run.attempt.seats == first.seats
    assert run.attempt.in_place
    assert run.attempt.master_port not in (0, first.master_port)
    assert run.job.reason_code is ReasonCode.RESTARTED_IN_PLACE
    assert run.job.reason == (
        "restarted in place on n1, n2 after: rank 0 on n1: killed by signal 9"
    )
    kinds = [event.kind for event in outcome.changes.events if event.job == run.id]
    assert "restarted_in_place" in kinds
    assert "placed" not in kinds
    (receipt,) = outcome.changes.receipts
    assert receipt.in_place
    assert receipt.text.endswith("restarted in place")
    states = {
        allocation.attempt: allocation.state
        for allocation in outcome.changes.allocations
    }
    assert states == {1: SeatState.RELEASED, 2: SeatState.HELD}


def test_the_seats_of_ended_ranks_are_not_given_to_a_waiting_job_meanwhile() -> None:
    run = Gang()
    waiting = run.cluster.submit(gang("other", nodes=1, gpus=2, priority=100))
    second = run.cluster.submit(gang("second", nodes=1, gpus=2, priority=100))
    assert run.cluster.world.jobs[waiting].state is JobState.STARTING
    run.first_fails()
    for _ in range(3):
        run.cluster.tick()
        assert run.cluster.world.jobs[second].state is JobState.QUEUED
    run.second_ends()
    assert run.job.state is JobState.STARTING
    assert run.cluster.world.jobs[second].state is JobState.QUEUED


def test_the_user_pays_within_two_seconds_while_the_job_runs() -> None:
    run = Gang()
    run.fail()
    before = run.job
    assert (before.user_retries, before.unpaid is None) == (0, False)
    run.settle()
    assert (run.job.user_retries, run.job.infra_retries) == (1, 0)
    assert run.job.unpaid is None
    assert run.job.state is JobState.STARTING


def test_a_node_fault_within_two_seconds_pays_and_moves_the_job_away() -> None:
    run = Gang()
    first = run.attempt
    run.fail()
    run.run_to(1)
    key = ((run.id, AttemptNumber(1)),)
    run.cluster.notice("n1", SignalKind.XID, 79, gpu=0, attempts=key)
    run.cluster.signals[NodeId("n1")] = tuple(
        replace(signal, at=first.placed_at + 1.0)
        for signal in run.cluster.signals[NodeId("n1")]
    )
    run.cluster.tick()
    outcome = run.cluster.outcome
    assert outcome is not None
    rows = {attempt.number: attempt for attempt in outcome.changes.attempts}
    assert rows[AttemptNumber(1)].cause is Cause.INFRA
    assert rows[AttemptNumber(1)].failed_on == "n1"
    assert [receipt.cause for receipt in outcome.changes.receipts] == [Cause.INFRA]
    fault = next(event for event in outcome.changes.events if event.kind == "fault")
    assert "counts as a fault of the cluster" in fault.text
    assert run.job.state is JobState.RECOVERING
    run.cluster.say(run.id, Phase.ENDED, exits=((0, Exit(signal=15)),))
    run.settle()
    assert (run.job.user_retries, run.job.infra_retries) == (0, 1)
    assert NodeId("n1") not in run.attempt.nodes
    assert not run.attempt.in_place


def test_a_second_failure_waits_until_the_first_is_paid() -> None:
    run = Gang(retry=Retry(user=1))
    run.fail()
    for id in run.attempt.nodes:
        run.say_traceback(id)
    run.fail(code=1)
    assert run.attempt.number == 2
    assert run.job.state is JobState.RECOVERING
    assert not run.cluster.world.allocations, "it holds no seat while it waits"
    run.settle()
    assert run.cluster.world.state_of(run.id) is JobState.FAILED


def test_a_used_up_budget_stays_binding() -> None:
    run = Gang(retry=Retry())
    run.fail()
    assert (run.attempt.number, run.job.state) == (1, JobState.RECOVERING)
    run.settle()
    assert run.cluster.world.state_of(run.id) is JobState.FAILED


def test_a_failure_that_names_itself_is_paid_at_once() -> None:
    run = Gang()
    run.say_traceback(run.attempt.nodes[0])
    run.fail(code=1)
    assert run.attempt.in_place
    assert (run.job.user_retries, run.job.unpaid) == (1, None)


def test_an_elastic_job_is_placed_anew() -> None:
    run = Gang(elastic=Elastic(min_nodes=1, max_nodes=2), checkpoint=SAVING)
    run.fail()
    run.settle()
    assert run.attempt.number == 2
    assert not run.attempt.in_place


def test_an_engine_with_a_scheduler_of_its_own_queues_the_job() -> None:
    run = Gang()
    run.cluster.facts = replace(run.cluster.facts, restarts_in_place=False)
    run.fail()
    run.settle()
    assert (run.attempt.number, run.attempt.in_place) == (2, False)


@pytest.mark.parametrize("change", ["cordon", "drain"])
def test_a_node_that_takes_no_work_is_left(
    change: Literal["cordon", "drain"],
) -> None:
    run = Gang(checkpoint=SAVING)
    run.first_fails()
    run.cluster.request(SetNode(node=NodeId("n2"), to=change))
    run.second_ends()
    run.settle()
    assert NodeId("n2") not in run.attempt.nodes


def test_the_third_failure_at_one_step_of_a_program_that_counts_anew_is_a_loop() -> (
    None
):
    run = Gang()
    for _ in range(2):
        run.fail()
        assert run.attempt.in_place
        run.run_to(20)
        run.settle()
    run.fail()
    assert run.attempt.number == 3
    run.settle()
    assert run.cluster.world.state_of(run.id) is JobState.FAILED


def test_a_failure_at_the_same_step_again_is_not_restarted_at_once() -> None:
    run = Gang(checkpoint=SAVING)
    run.fail()
    run.run_to(20)
    run.settle()
    run.fail()
    assert (run.attempt.number, run.job.state) == (2, JobState.RECOVERING)
    run.settle()
    assert (run.attempt.number, run.attempt.in_place) == (3, False)
    assert run.job.fruitless == 2


def test_a_program_that_counts_anew_and_ends_elsewhere_has_progressed() -> None:
    run = Gang(retry=Retry(user=10))
    for step in (15, 12, 17, 11):
        run.fail()
        assert run.attempt.in_place
        run.settle()
        run.run_to(step)
    assert run.job.fruitless == 1
    saving = Gang(checkpoint=SAVING)
    saving.fail()
    saving.settle()
    saving.run_to(15)
    saving.fail()
    assert saving.attempt.number == 2


def test_a_second_fault_of_the_cluster_keeps_its_delay() -> None:
    run = Gang()
    run.fail(code=EXIT_STOPPED)
    assert (run.attempt.in_place, run.job.infra_retries) == (True, 1)
    run.run_to(40)
    run.fail(code=EXIT_STOPPED)
    assert run.job.state is JobState.HELD
    assert run.job.reason_code is ReasonCode.RETRY_DELAY


def test_a_full_disk_is_left() -> None:
    run = Gang()
    exit = Exit(code=1, disk_full=True, at=run.cluster.wall)
    run._end(run.attempt.nodes[0], 0, exit)
    run.second_ends()
    run.settle()
    assert not run.attempt.in_place


def test_a_promise_that_counts_on_the_job_is_kept() -> None:
    run = Gang(max_duration_seconds=600.0)
    other = run.cluster.submit(gang("whole", nodes=3, gpus=2))
    reservation = Reservation(
        job=other,
        shape=run.cluster.world.jobs[other].spec.shapes[0],
        seats=run.attempt.seats,
        victims=(),
        since=run.cluster.wall,
        latest_start=run.cluster.wall + 700.0,
        after=(run.id,),
    )
    run.cluster.world.reservations[other] = reservation
    run.fail()
    assert run.attempt.number == 1 or not run.attempt.in_place


def test_a_hang_is_restarted_in_place_and_the_cluster_pays_at_once() -> None:
    run = Gang()
    record = HangRecord(
        at=run.cluster.wall,
        stalled_seconds=12.0,
        step=20,
        newest_step=20,
        act=HangAct.RESTART,
        why="no rank has made a step",
    )
    run.cluster.world.attempts[run.id] = replace(
        run.attempt,
        hang=record,
        cause=Cause.INFRA,
        culprit="the gang",
        evidence=record.evidence,
        failure=FailureKind.STALL,
        ended_at=run.cluster.wall,
    )
    run.fail()
    assert run.attempt.in_place
    assert (run.job.infra_retries, run.job.unpaid) == (1, None)


@pytest.mark.parametrize("asked", ["cancel", "requeue"])
def test_a_stop_before_it_is_paid_charges_the_user(asked: str) -> None:
    run = Gang()
    run.fail()
    request = Cancel(job=run.id) if asked == "cancel" else Requeue(job=run.id)
    run.cluster.request(request)
    run.cluster.say(run.id, Phase.ENDED, exits=((0, Exit(signal=15)),))
    outcome = run.cluster.tick()
    (job,) = [job for job in outcome.changes.jobs if job.id == run.id]
    assert (job.user_retries, job.unpaid) == (1, None)


def test_a_bug_in_the_restart_leaves_no_allocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Gang()

    def fail(*_: object) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr("corral.reconcile.in_place._nodes_text", fail)
    run.fail()
    outcome = run.cluster.outcome
    assert outcome is not None
    assert outcome.bugs
    assert all(row.attempt == 1 for row in outcome.changes.allocations)
    assert run.attempt.number == 1
    monkeypatch.undo()
    run.cluster.tick()
    assert run.attempt.in_place
