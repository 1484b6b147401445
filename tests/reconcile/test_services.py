"""Replicas of a service: made, ready, counted, and replaced when they end."""

from dataclasses import replace

import pytest

from corral.domain.attempt import Exit
from corral.domain.ids import AttemptNumber, JobId, Sequence
from corral.domain.job import Disconnect
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase
from corral.domain.requests import (
    Cancel,
    Requeue,
    Suspend,
)
from corral.domain.service import ServiceState
from corral.reconcile.desired_state import launch_of
from corral.reconcile.services.replica_count import first_reason
from tests.reconcile.serving import CHAT, Serving, service_spec, several

# -- replicas are jobs -----------------------------------------------------------------


def test_a_service_makes_its_least_number_of_replicas_which_are_jobs() -> None:
    serving = Serving(service_spec(min_replicas=2, max_replicas=4))
    job = serving.cluster.world.jobs[JobId("j1_1")]
    assert [row.job for row in serving.rows] == ["j1_1", "j1_2"]
    assert (job.spec.name, job.array, job.spec.array_index) == ("chat_1", "j1", 1)
    assert (job.owner, job.submitted, job.state) == (
        "alice",
        Sequence(1),
        JobState.STARTING,
    )
    assert job.spec.disconnect == Disconnect.REPLACE
    role = job.spec.replica
    assert role is not None
    assert (role.service, role.revision, role.probe, role.key_seed) == (
        CHAT,
        1,
        "/health",
        "5eed",
    )
    assert len(serving.told("replica_made")) == 2


def test_an_agent_gets_the_role_of_the_replica_with_its_launch() -> None:
    serving = Serving()
    world = serving.cluster.world
    job, attempt = world.jobs[JobId("j1_1")], world.attempts[JobId("j1_1")]
    launch = launch_of(world, job, attempt, attempt.nodes[0])
    assert launch.replica is not None
    assert (launch.replica.service, launch.replica.revision) == (CHAT, 1)
    assert (launch.replica.number, launch.replica.probe) == (1, "/health")


def test_a_replica_is_ready_when_its_first_node_says_so_once_for_each_attempt() -> None:
    spec = service_spec()
    serving = Serving(replace(spec, replica=replace(spec.replica, nodes=2)))
    serving.up(1)
    first, second = serving.cluster.world.attempts[JobId("j1_1")].nodes
    serving.cluster.say(JobId("j1_1"), Phase.UP, on=second, is_ready=True)
    serving.tick()
    assert serving.ready_numbers == []
    serving.cluster.say(JobId("j1_1"), Phase.STARTING, on=second)
    serving.cluster.say(JobId("j1_1"), Phase.UP, on=first, is_ready=True)
    serving.tick()
    assert serving.ready_numbers == [1]
    serving.not_ready(1, "500 Internal Server Error")
    assert serving.ready_numbers == []
    assert "500 Internal" in serving.told("replica_not_ready")[0]
    serving.ready()
    assert serving.ready_numbers == [1]
    assert len(serving.told("replica_ready")) == 1


def test_a_gang_is_not_ready_before_all_its_ranks_are_up() -> None:
    spec = service_spec()
    serving = Serving(replace(spec, replica=replace(spec.replica, nodes=2)))
    job = JobId("j1_1")
    first, second = serving.cluster.world.attempts[job].nodes
    serving.cluster.say(job, Phase.UP, on=first, is_ready=True)
    serving.cluster.say(job, Phase.STARTING, on=second)
    serving.tick()
    assert serving.ready_numbers == []
    serving.cluster.say(job, Phase.UP, on=second)
    serving.tick()
    assert serving.ready_numbers == [1]


def test_a_replica_that_is_preempted_is_not_ready_while_it_stops_and_waits() -> None:
    serving = several(1, 1, nodes=1)
    serving.ask(Requeue(job=JobId("j1_1")))
    assert serving.job(1).state == JobState.STOPPING
    assert serving.ready_numbers == []
    assert serving.numbers == [1]
    serving.leave()
    assert serving.job(1).attempt == 2
    assert serving.ready_numbers == []
    serving.ready()
    assert serving.ready_numbers == [1]


def test_the_readiness_of_an_earlier_attempt_never_counts() -> None:
    serving = several(1, 1)
    serving.cluster.say(JobId("j1_1"), Phase.UP)
    row = replace(serving.rows[0], attempt=AttemptNumber(0))
    serving.cluster.world.services[CHAT] = serving.service.with_row(row)
    serving.tick()
    assert serving.ready_numbers == []


def test_without_a_report_the_last_result_of_the_probe_holds() -> None:
    serving = several(1, 1)
    serving.cluster.facts.nodes.clear()
    serving.cluster.mute.update(serving.cluster.nodes)
    serving.tick()
    assert serving.ready_numbers == [1]


def test_a_new_attempt_is_not_ready_until_it_says_so() -> None:
    serving = several(1, 1)
    (lost,) = serving.cluster.world.attempts[JobId("j1_1")].nodes
    serving.lose(lost)
    serving.tick()
    assert serving.cluster.world.jobs[JobId("j1_1")].attempt == 2
    assert serving.rows[0].ready_at is None
    assert serving.numbers == [1], "the same replica: the cluster's fault"
    serving.cluster.say(JobId("j1_1"), Phase.UP)
    serving.tick()
    assert serving.ready_numbers == []
    serving.ready()
    assert serving.ready_numbers == [1]
    assert serving.rows[0].attempt == 2
    assert len(serving.told("replica_ready")) == 2


# -- ends ------------------------------------------------------------------------------


def test_a_replica_that_ends_is_replaced_by_one_with_a_new_number() -> None:
    serving = several(2, 2)
    serving.tick(60.0)
    serving.crash(1)
    assert serving.numbers == [2, 3]
    assert (serving.service.fruitless, serving.service.last_end) == (0, "")
    ended = serving.told("replica_ended")
    assert len(ended) == 1
    assert "chat_1 is FAILED" in ended[0]


def test_replicas_that_end_before_they_are_ready_delay_the_next_one() -> None:
    serving = Serving()
    delays = []
    for number in range(1, 9):
        serving.up(number)
        serving.end(number)
        ended_at = serving.cluster.wall
        retry_at = serving.service.retry_at
        assert retry_at is not None
        delays.append(retry_at - ended_at)
        assert serving.numbers == []
        serving.tick(delays[-1] - 0.5)
        assert serving.numbers == []
        serving.tick()
        assert serving.numbers == [number + 1]
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
    assert "it was never ready" in serving.service.last_end
    serving.ready()
    serving.tick(59.5)
    assert serving.service.fruitless == 8
    serving.tick()
    service = serving.service
    assert (service.fruitless, service.retry_at, service.last_end) == (0, None, "")
    assert service.state == ServiceState.ACTIVE


def test_replicas_that_end_soon_after_they_were_ready_delay_the_next_one() -> None:
    serving = Serving()
    for number, delay in ((1, 1.0), (2, 2.0), (3, 4.0)):
        serving.ready()
        serving.tick(11.5)
        serving.end(number)
        assert serving.service.fruitless == number
        assert "exit code 7; it was ready for 12 s only" in serving.service.last_end
        serving.tick(delay - 0.5)
        assert serving.numbers == []
        serving.tick()
        assert serving.numbers == [number + 1]


def test_a_replica_may_have_been_ready_for_a_minute_in_several_parts() -> None:
    serving = Serving()
    serving.up(1)
    serving.crash(1)
    for _ in range(3):
        serving.ready()
        serving.tick(19.5)
        assert serving.service.fruitless == 1
        serving.not_ready(2)
        serving.tick(50.0)
    serving.end(2)
    assert serving.service.fruitless == 0


def test_a_replica_that_has_long_been_ready_does_not_excuse_the_ends_of_others() -> (
    None
):
    serving = several(2, 2)
    serving.tick(60.0)
    serving.end(2)
    for number, delay in ((3, 1.0), (4, 2.0)):
        serving.up(number)
        serving.end(number)
        serving.tick(delay - 0.5)
        assert serving.numbers == [1]
        serving.tick()
        assert serving.numbers == [1, number + 1]
    assert serving.service.fruitless == 2


def test_the_end_of_a_replica_that_was_drained_does_not_count() -> None:
    serving = several(2, 2)
    serving.scale(1, 1)
    exits = ((0, Exit(code=0, at=1.0)),)
    serving.cluster.say(JobId("j1_2"), Phase.ENDED, exits=exits)
    serving.tick(times=2)
    assert serving.job(2).state == JobState.DONE
    assert (serving.numbers, serving.service.fruitless) == ([1], 0)


def test_several_that_end_together_count_once() -> None:
    serving = Serving(service_spec(min_replicas=4, max_replicas=4))
    for row in serving.rows:
        serving.cluster.say(row.job, Phase.ENDED, exits=((0, Exit(code=7, at=1.0)),))
    serving.tick()
    serving.tick(2.0)
    assert serving.service.fruitless == 1


def test_a_clock_that_is_set_back_does_not_prolong_the_delay() -> None:
    serving = Serving()
    serving.up(1)
    serving.end(1)
    assert serving.numbers == []
    serving.cluster.wall -= 86_400.0
    serving.tick()
    assert serving.numbers == [2]


def test_a_waiting_replica_that_a_user_suspends_is_replaced_too() -> None:
    serving = Serving(nodes=0)
    serving.ask(Suspend(job=JobId("j1_1")))
    assert serving.job(1).state == JobState.CANCELLED
    assert serving.numbers == [2]


@pytest.mark.parametrize("asked", [Cancel, Suspend])
def test_a_replica_that_a_user_stops_is_replaced_without_delay(
    asked: type[Cancel] | type[Suspend],
) -> None:
    serving = Serving(service_spec(min_replicas=2, max_replicas=2))
    serving.ask(asked(job=JobId("j1_1")))
    assert serving.numbers == [2, 3]
    assert serving.draining == [1]
    serving.leave()
    assert [row.number for row in serving.rows] == [2, 3]
    assert serving.job(1).state == JobState.CANCELLED
    assert serving.service.fruitless == 0


# -- how many --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ((0, 2), "its first replica starts with the first request"),
        ((0, 0), "its spec asks for 0 replicas"),
        ((1, 2), "its spec asks for at least 1 replica"),
    ],
)
def test_a_new_service_says_why_it_has_its_number_of_replicas(
    bounds: tuple[int, int], reason: str
) -> None:
    least, most = bounds
    spec = service_spec(min_replicas=least, max_replicas=most)
    assert first_reason(spec) == reason


def test_the_number_follows_the_measured_demand_within_the_range() -> None:
    serving = several(1, 3)
    serving.measure(wanted=2, reason="6 requests under way at each replica")
    serving.tick()
    assert serving.numbers == [1, 2]
    text = "service chat needs 2 replicas now, 1 before: 6 requests under way at each"
    assert serving.told("service_scaled")[0].startswith(text)
    serving.measure(wanted=9, reason="40 requests wait")
    serving.tick()
    assert len(serving.numbers) == serving.service.wanted == 3
    assert serving.service.reason == (
        "40 requests wait; its spec asks for at most 3 replicas"
    )
    serving.measure(wanted=0)
    serving.tick()
    assert serving.service.wanted == 1
    serving.tick(times=3)
    assert len(serving.told("service_scaled")) == 3


def test_without_a_measurement_the_number_stays() -> None:
    serving = several(1, 3)
    serving.measure(wanted=3)
    serving.tick()
    serving.cluster.facts.services.clear()
    serving.tick()
    assert serving.service.wanted == 3
    serving.scale(1, 2)
    assert serving.service.wanted == 2


def test_a_service_goes_to_zero_and_back() -> None:
    serving = several(0, 2)
    assert serving.numbers == []
    serving.measure(wanted=1, reason="a request waits")
    serving.tick()
    assert serving.numbers == [1]
    serving.ready()
    serving.measure(wanted=0, under_way={JobId("j1_1"): 0})
    serving.tick()
    assert serving.draining == [1]
    serving.tick(2.0)
    serving.leave()
    assert serving.rows == ()


def test_of_too_many_those_without_nodes_end_first_then_unready_then_the_newest() -> (
    None
):
    serving = several(4, 6, nodes=2)
    serving.not_ready(2)
    serving.measure(wanted=5)
    serving.tick()
    assert serving.job(5).state == JobState.QUEUED
    serving.measure(wanted=4)
    serving.tick()
    assert (serving.numbers, serving.draining) == ([1, 2, 3, 4], [])
    assert serving.job(5).state == JobState.CANCELLED
    assert serving.job(5).reason == "service chat needs 4 replicas now"
    serving.scale(1, 1)
    serving.measure(wanted=1)
    serving.tick()
    assert serving.numbers == [1]
    assert serving.draining == [2, 3, 4]


def test_an_unready_replica_ends_before_ready_ones() -> None:
    serving = several(3, 3)
    serving.not_ready(1)
    serving.scale(2, 2)
    assert (serving.numbers, serving.draining) == ([2, 3], [1])


def test_replicas_are_spread_over_the_nodes() -> None:
    serving = Serving(service_spec(min_replicas=3, max_replicas=3), nodes=3)
    attempts = serving.cluster.world.attempts.values()
    assert {attempt.nodes for attempt in attempts} == {("n1",), ("n2",), ("n3",)}
