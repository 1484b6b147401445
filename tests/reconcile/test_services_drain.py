"""Replicas of a service that are drained: too many, on draining nodes, or at the end
of the service."""

from dataclasses import replace

import pytest

from corral.domain.idle_policy import IdleRule
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job_states import JobState, StopWhy
from corral.domain.queue import Queue
from corral.domain.requests import (
    SetNode,
    SetQueues,
)
from corral.domain.service import ServiceState
from tests.reconcile.serving import CHAT, Serving, service_spec, several
from tests.worlds import node

# -- drain -----------------------------------------------------------------------------


def test_a_drained_replica_ends_when_nothing_is_under_way() -> None:
    serving = several(2, 2, drain_seconds=60.0)
    serving.measure(under_way={JobId("j1_2"): 3})
    serving.scale(1, 1)
    assert serving.draining == [2]
    assert serving.told("replica_draining") == [
        "chat_2 gets no new requests: service chat needs 1 replica now"
    ]
    serving.tick(10.0)
    assert serving.job(2).state == JobState.RUNNING
    serving.measure(under_way={JobId("j1_2"): 0})
    serving.tick()
    job = serving.job(2)
    assert (job.state, job.why) == (JobState.STOPPING, StopWhy.CANCEL)
    assert job.reason == "service chat needs 1 replica now"
    serving.leave()
    assert [row.number for row in serving.rows] == [1]


def test_counters_from_before_the_drain_do_not_end_it() -> None:
    serving = several(2, 2)
    serving.measure(under_way={JobId("j1_2"): 0})
    serving.scale(1, 1)
    serving.tick(1.5)
    assert serving.job(2).state == JobState.RUNNING
    serving.tick()
    assert serving.job(2).state == JobState.STOPPING


@pytest.mark.parametrize("under_way", [{}, {JobId("j1_2"): 5}])
def test_a_drain_lasts_at_most_its_time(under_way: dict[JobId, int]) -> None:
    serving = several(2, 2, drain_seconds=30.0)
    serving.measure(under_way=under_way)
    serving.scale(1, 1)
    serving.tick(29.0)
    assert serving.job(2).state == JobState.RUNNING
    serving.tick(1.0)
    assert serving.job(2).state == JobState.STOPPING


def test_a_drain_outlasts_a_clock_that_is_set_back() -> None:
    serving = several(2, 2, drain_seconds=30.0)
    serving.scale(1, 1)
    serving.cluster.wall -= 86_400.0
    serving.tick(29.0)
    assert serving.job(2).state == JobState.RUNNING
    serving.tick(31.0)
    assert serving.job(2).state == JobState.STOPPING


def test_a_replica_that_was_ready_once_is_drained_even_if_its_probe_fails_now() -> None:
    serving = several(2, 2)
    serving.not_ready(2)
    serving.scale(1, 1)
    assert serving.job(2).state == JobState.RUNNING
    serving.tick(60.0)
    assert serving.job(2).state == JobState.STOPPING


def test_a_drained_replica_that_is_preempted_does_not_come_back() -> None:
    serving = several(2, 2)
    job = serving.job(2)
    serving.scale(1, 1)
    moved = replace(job, state=JobState.STOPPING, why=StopWhy.PREEMPT)
    serving.cluster.world.jobs[job.id] = moved
    serving.cluster.world._index = None
    serving.leave()
    serving.tick()
    assert serving.job(2).state == JobState.CANCELLED


# -- nodes that are being drained ------------------------------------------------------


def test_a_replica_on_a_draining_node_is_replaced_before_it_ends() -> None:
    serving = several(1, 1)
    serving.drain_node_of(1)
    assert serving.numbers == [1, 2]
    assert serving.ready_numbers == [1]
    serving.tick(times=3)
    assert serving.job(1).state == JobState.RUNNING
    serving.ready(2)
    assert (serving.numbers, serving.draining) == ([2], [1])
    serving.tick(60.0)
    assert serving.job(1).why == StopWhy.CANCEL
    assert "its node is being drained" in serving.job(1).reason
    serving.leave()
    assert [row.number for row in serving.rows] == [2]


def test_all_replicas_of_a_draining_node_are_replaced_at_the_same_time() -> None:
    serving = several(2, 2, nodes=1)
    serving.cluster.nodes[NodeId("n2")] = node("n2")
    serving.tick()
    serving.drain_node_of(1)
    assert serving.numbers == [1, 2, 3, 4]
    serving.ready(3)
    assert serving.draining == [2]
    serving.ready(4)
    assert serving.draining == [1, 2]


def test_without_room_elsewhere_it_is_drained_after_a_minute() -> None:
    serving = several(1, 1, nodes=1)
    serving.drain_node_of(1)
    serving.tick(59.0)
    assert serving.ready_numbers == [1]
    serving.tick(1.0)
    assert (serving.numbers, serving.draining) == ([2], [1])


def test_a_replacement_that_starts_slowly_is_waited_for_but_not_for_ever() -> None:
    serving = several(1, 1)
    serving.drain_node_of(1)
    serving.up(2)
    serving.tick(500.0)
    assert serving.ready_numbers == [1]
    serving.tick(100.0)
    assert serving.draining == [1]


def test_a_node_that_is_opened_again_keeps_its_replica() -> None:
    serving = several(1, 1, nodes=1)
    serving.drain_node_of(1)
    assert serving.job(2).state == JobState.QUEUED
    serving.ask(SetNode(node=NodeId("n1"), to="uncordon"))
    assert serving.numbers == [1]
    assert serving.job(2).state == JobState.CANCELLED
    assert serving.row(1).leaving_since is None


def test_a_replica_that_is_not_ready_leaves_a_draining_node_at_once() -> None:
    serving = Serving()
    serving.drain_node_of(1)
    assert (serving.numbers, serving.draining) == ([2], [1])
    assert serving.job(1).state == JobState.STOPPING


def test_idle_gpus_of_a_replica_are_the_concern_of_its_service() -> None:
    rule = IdleRule(warn_seconds=60.0, reclaim_seconds=120.0)
    serving = several(1, 1)
    queue = Queue(name=serving.job(1).spec.queue, idle=rule)
    serving.cluster.request(SetQueues(queues=(queue,), whole=True))
    key = (JobId("j1_1"), AttemptNumber(1))
    serving.cluster.facts.idle[key] = serving.cluster.wall
    for _ in range(5):
        serving.tick(100.0)
    assert serving.job(1).state == JobState.RUNNING


# -- the end of a service --------------------------------------------------------------


def test_a_stopped_service_drains_all_replicas_and_then_is_no_more() -> None:
    serving = several(2, 2)
    serving.stop()
    assert serving.service.state == ServiceState.STOPPING
    assert (serving.service.wanted, serving.service.ready_text) == (
        0,
        "0 of 0 replicas ready",
    )
    assert serving.draining == [1, 2]
    assert serving.told("service_stopped") == [
        "service chat is being stopped, requested by alice"
    ]
    serving.tick(60.0)
    serving.leave()
    assert CHAT not in serving.cluster.world.services
    assert not serving.cluster.world.jobs
    outcome = serving.cluster.outcome
    assert outcome is not None
    (row,) = outcome.changes.services
    assert (row.state, row.stopped_at) == (ServiceState.STOPPED, serving.cluster.wall)
    assert serving.told("service_stopped")[-1] == "service chat is stopped"


def test_a_service_without_nodes_to_wait_for_stops_at_once() -> None:
    serving = Serving(nodes=0)
    assert serving.job(1).state == JobState.QUEUED
    serving.stop()
    assert CHAT not in serving.cluster.world.services
    assert serving.jobs[JobId("j1_1")].state == JobState.CANCELLED


def test_requests_for_a_service_that_is_being_stopped_have_no_effect() -> None:
    serving = several(1, 1)
    serving.stop()
    before = serving.service
    serving.scale(3, 3)
    serving.apply(service_spec("serve v2"))
    serving.stop()
    assert serving.service == before
    assert len(serving.told("request_failed")) == 2


def test_a_name_that_is_free_again_makes_another_service() -> None:
    serving = Serving(nodes=0)
    serving.stop()
    serving.apply(service_spec())
    assert serving.service.id == "j3"
    assert [row.job for row in serving.rows] == ["j3_1"]
