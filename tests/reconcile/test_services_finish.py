"""Replicas that are preempted: their ranks finish the requests under way before they
are stopped."""

from dataclasses import replace

import pytest

from corral.control.desired_versions import Book
from corral.domain.attempt import SeatState
from corral.domain.desired_state import DesiredState, Version
from corral.domain.ids import JobId
from corral.domain.job_states import JobState, StopWhy
from corral.domain.requests import Cancel, Requeue, Suspend
from corral.domain.world import Changes
from corral.reconcile import Now, wanted_of
from corral.reconcile.changeset import Draft
from corral.reconcile.start_forecast import present_of
from tests.reconcile.serving import Serving, several

JOB = JobId("j1_1")


def desired(serving: Serving, job: JobId = JOB) -> DesiredState:
    """The desired state of the node of the replica with this job."""
    cluster = serving.cluster
    node = cluster.world.attempts[job].nodes[0]
    held = [one for one in cluster.world.allocations.values() if one.seat.node == node]
    version = Version(term=1, counter=1)
    return wanted_of(cluster.world, node, held, cluster.facts.nodes[node], version)


def stopped(serving: Serving, job: JobId = JOB) -> list[str]:
    return [stop.why for stop in desired(serving, job).stop]


def preempt(serving: Serving) -> None:
    """Requeue the replica, which stops it as a preemption does."""
    serving.ask(Requeue(job=JOB))
    assert serving.job(1).state == JobState.STOPPING


def test_a_preempted_replica_is_stopped_once_its_requests_are_finished() -> None:
    serving = several(1, 1, drain_seconds=60.0)
    serving.measure(under_way={JOB: 3})
    preempt(serving)
    serving.tick(30.0)
    state = desired(serving)
    assert ([launch.key for launch in state.run], state.stop) == ([(JOB, 1)], ())
    assert serving.cluster.world.allocations, "its seats stay taken"
    serving.measure(under_way={JOB: 0})
    serving.tick()
    assert desired(serving).run == ()
    (stop,) = desired(serving).stop
    assert (stop.why, stop.grace_seconds) == ("requeue", 30.0)


def test_counters_from_before_the_preemption_do_not_count() -> None:
    serving = several(1, 1)
    serving.measure(under_way={JOB: 0})
    preempt(serving)
    serving.tick(1.5)
    assert stopped(serving) == []
    serving.tick()
    assert stopped(serving) == ["requeue"]


@pytest.mark.parametrize("under_way", [None, {}, {JOB: 3}])
def test_requests_have_the_drain_time_to_finish_and_no_longer(
    under_way: dict[JobId, int] | None,
) -> None:
    serving = several(1, 1, drain_seconds=20.0)
    if under_way is not None:
        serving.measure(under_way=under_way)
    preempt(serving)
    serving.tick(19.5)
    assert stopped(serving) == []
    serving.tick()
    assert stopped(serving) == ["requeue"]
    serving.leave()
    assert serving.job(1).attempt == 2, "it comes back"


def test_a_replica_that_was_never_ready_is_stopped_at_once() -> None:
    serving = Serving()
    serving.up(1)
    preempt(serving)
    assert stopped(serving) == ["requeue"]


def test_a_replica_that_a_user_cancels_is_stopped_at_once() -> None:
    serving = several(1, 1)
    serving.measure(under_way={JOB: 3})
    serving.ask(Cancel(job=JOB))
    assert stopped(serving) == ["cancel"]


def test_a_suspended_replica_finishes_its_requests() -> None:
    serving = several(1, 1)
    serving.measure(under_way={JOB: 3})
    serving.ask(Suspend(job=JOB))
    serving.tick(30.0)
    assert stopped(serving) == []
    serving.tick(30.0)
    assert stopped(serving) == ["cancel"]


def test_a_drained_replica_that_is_preempted_still_finishes_its_requests() -> None:
    serving = several(2, 2, drain_seconds=60.0)
    serving.measure(under_way={JobId("j1_2"): 3, JOB: 3})
    serving.scale(1, 1)
    assert serving.draining == [2]
    serving.tick(20.0)
    serving.ask(Requeue(job=JobId("j1_2")))
    serving.tick(20.0)
    assert serving.job(2).why == StopWhy.REQUEUE
    assert stopped(serving, JobId("j1_2")) == []
    serving.tick(20.0)
    assert serving.job(2).why == StopWhy.CANCEL
    assert stopped(serving, JobId("j1_2")) == ["cancel"]


def test_a_clock_that_is_set_back_ends_the_wait() -> None:
    serving = several(1, 1)
    serving.measure(under_way={JOB: 3})
    preempt(serving)
    serving.cluster.wall -= 86_400.0
    serving.tick()
    assert stopped(serving) == ["requeue"]


def test_a_replica_whose_ranks_end_meanwhile_gives_its_seats_back() -> None:
    serving = several(1, 1, nodes=1)
    serving.measure(under_way={JOB: 3})
    preempt(serving)
    serving.leave()
    assert serving.job(1).attempt == 2


def test_forecasts_count_the_time_in_which_requests_finish() -> None:
    serving = several(1, 1, drain_seconds=60.0)
    serving.measure(under_way={JOB: 3})
    preempt(serving)
    cluster, stopping_since = serving.cluster, serving.job(1).since
    now = Now(wall=cluster.wall, serving=cluster.serving)
    present, _ = present_of(Draft(cluster.world, cluster.facts, now))
    (holder,) = present.holders
    assert holder.frees_at == stopping_since + 60.0 + 30.0


def test_a_node_that_was_silent_stops_the_ranks_at_once() -> None:
    serving = several(1, 1)
    serving.measure(under_way={JOB: 3})
    preempt(serving)
    allocations = serving.cluster.world.allocations
    for key, allocation in allocations.items():
        allocations[key] = replace(allocation, state=SeatState.UNREACHABLE)
    assert (desired(serving).run, stopped(serving)) == ((), ["requeue"])


def test_a_node_gets_its_new_desired_state_when_the_requests_are_finished() -> None:
    serving = several(1, 1, drain_seconds=20.0)
    world, book = serving.cluster.world, Book()
    node = world.attempts[JOB].nodes[0]
    heard = serving.cluster.facts.nodes[node]
    book.index(world, Changes())
    preempt(serving)
    book.renewed(world, node, heard)
    serving.tick(20.0)
    outcome = serving.cluster.outcome
    assert outcome is not None
    assert book.concerned(outcome.changes, ()) == {node}
    state = book.renewed(world, node, heard)
    assert state is not None
    assert [stop.key for stop in state.stop] == [(JOB, 1)]
