"""What is done for the health of nodes: by itself, under a breaker, and told."""

from dataclasses import replace

import pytest

from corral.domain.cause import Cause
from corral.domain.errors import InvariantBroken
from corral.domain.ids import BootId, NodeId
from corral.domain.job_states import JobState
from corral.domain.node import Node
from corral.domain.node_signal import SignalKind
from corral.domain.observed_state import Phase
from corral.domain.requests import CordonSuspects, SetNode
from corral.health.health_rules import HealthRules
from corral.reconcile.changeset import Draft, Now
from corral.reconcile.invariants import check
from tests.worlds import Cluster, gang, node

XID = SignalKind.XID
N0 = NodeId("n0")


def cluster_of(count: int, gpus: int = 2) -> Cluster:
    return Cluster(*(node(f"n{number}", gpus) for number in range(count)))


def closed(cluster: Cluster) -> list[str]:
    return sorted(id for id, one in cluster.world.nodes.items() if one.cordoned)


def suspects(cluster: Cluster) -> list[str]:
    return sorted(id for id, one in cluster.world.nodes.items() if one.suspect)


def at(cluster: Cluster, id: str) -> Node:
    return cluster.world.nodes[NodeId(id)]


def told(cluster: Cluster) -> list[str]:
    assert cluster.outcome is not None
    return [event.kind for event in cluster.outcome.changes.events]


def test_a_lost_gpu_drains_its_node_and_its_job_begins_again_elsewhere_at_once() -> (
    None
):
    cluster = cluster_of(2)
    job = cluster.submit(gang(gpus=1))
    where = cluster.world.attempts[job].nodes[0]
    gpu = cluster.world.attempts[job].seats[0].gpus[0]
    cluster.up(job)
    cluster.notice(where, XID, 79, gpu=gpu)
    cluster.tick()
    assert closed(cluster) == [where]
    assert at(cluster, where).cordoned_by == "health"
    assert {"drain", "condition"} <= set(told(cluster))
    events = cluster.outcome.changes.events if cluster.outcome else ()
    line = f"; to repair it: corral node drain {where} -y && sudo systemctl reboot"
    assert [one.text.endswith(line) for one in events if one.kind == "condition"] == [
        True
    ]
    assert cluster.world.jobs[job].state == JobState.RECOVERING
    attempt = cluster.world.attempts[job]
    assert (attempt.cause, attempt.failed_on) == (Cause.INFRA, where)
    assert attempt.culprit == f"GPU {gpu} of node {where}"
    cluster.say(job, Phase.ENDED)
    cluster.tick()
    assert cluster.world.attempts[job].nodes != (where,)
    assert cluster.world.jobs[job].infra_retries == 1


def test_a_job_on_another_gpu_of_the_node_is_moved_and_pays_no_retry() -> None:
    cluster = cluster_of(1)
    first, second = cluster.submit(gang("a")), cluster.submit(gang("b"))
    for job in (first, second):
        cluster.up(job)
    gpu = cluster.world.attempts[first].seats[0].gpus[0]
    cluster.notice("n0", XID, 95, gpu=gpu)
    cluster.tick()
    assert cluster.world.jobs[first].state == JobState.RECOVERING
    assert cluster.world.jobs[second].state == JobState.STOPPING
    assert cluster.world.attempts[second].cause == Cause.NONE


def test_who_came_after_it_was_noticed_is_not_ended_for_it() -> None:
    cluster = cluster_of(1)
    cluster.notice("n0", XID, 94, gpu=0)
    late, cluster.signals = cluster.signals, {}
    cluster.tick(seconds=60.0)
    job = cluster.submit(gang(gpus=2))
    cluster.up(job)
    cluster.signals = late
    cluster.tick()
    assert cluster.world.jobs[job].state == JobState.RUNNING


def test_no_more_than_the_breakers_share_is_cordoned_and_the_worst_of_them_first() -> (
    None
):
    cluster = cluster_of(30)
    for number in range(29):
        cluster.notice(f"n{number}", XID, 119, gpu=0)
    cluster.notice("n29", XID, 64, gpu=0)
    cluster.notice("n29", XID, 48, gpu=0)
    cluster.tick()
    assert len(closed(cluster)) == 3
    assert "n29" in closed(cluster)
    assert len(suspects(cluster)) == 27
    for _ in range(10):
        cluster.tick(seconds=60.0)
    assert len(closed(cluster)) == 3, "who is held back waits for a person"


def test_at_least_one_node_of_a_small_cluster_is_cordoned_by_itself() -> None:
    cluster = cluster_of(2)
    cluster.notice("n0", XID, 79, gpu=0)
    cluster.tick()
    assert closed(cluster) == ["n0"]
    cluster.notice("n1", XID, 79, gpu=0)
    cluster.tick()
    assert (closed(cluster), suspects(cluster)) == (["n0"], ["n1"])


def test_jobs_on_a_node_that_is_held_back_run_on() -> None:
    cluster = cluster_of(2)
    jobs = [cluster.submit(gang(f"j{number}", gpus=2)) for number in range(2)]
    for job in jobs:
        cluster.up(job)
    for number in range(2):
        cluster.notice(f"n{number}", XID, 79, gpu=0)
    cluster.tick()
    states = sorted(str(cluster.world.jobs[job].state) for job in jobs)
    assert states == ["RECOVERING", "RUNNING"]


def test_when_the_time_of_the_breaker_is_over_the_next_one_may_go() -> None:
    cluster = cluster_of(3)
    cluster.notice("n0", XID, 79, gpu=0)
    cluster.tick()
    cluster.tick(seconds=301.0)
    cluster.notice("n1", XID, 79, gpu=0)
    cluster.tick()
    assert closed(cluster) == ["n0", "n1"]


def test_observed_only_nothing_is_done_and_all_is_listed() -> None:
    cluster = cluster_of(2)
    cluster.health = HealthRules(mode="observe")
    job = cluster.submit(gang(gpus=2))
    cluster.up(job)
    where = cluster.world.attempts[job].nodes[0]
    cluster.notice(where, XID, 79, gpu=0)
    cluster.tick()
    assert (closed(cluster), suspects(cluster)) == ([], [where])
    assert cluster.world.jobs[job].state == JobState.RUNNING


def test_a_suspect_is_taken_last() -> None:
    cluster = cluster_of(2)
    cluster.health = HealthRules(mode="observe")
    cluster.notice("n0", XID, 79, gpu=0)
    cluster.tick()
    job = cluster.submit(gang())
    assert cluster.world.attempts[job].nodes == (NodeId("n1"),)


def test_a_person_who_cordons_a_suspect_has_decided() -> None:
    cluster = cluster_of(2)
    cluster.health = HealthRules(mode="observe")
    cluster.notice("n0", XID, 79, gpu=0)
    cluster.tick()
    cluster.request(SetNode(node=N0, to="cordon"))
    assert (at(cluster, "n0").cordoned_by, suspects(cluster)) == ("", [])


def test_a_boot_that_mends_it_opens_the_node_again() -> None:
    cluster = cluster_of(1)
    cluster.notice("n0", XID, 79, gpu=0)
    cluster.tick()
    cluster.nodes[N0] = replace(cluster.nodes[N0], boot=BootId("anew"))
    cluster.tick()
    assert closed(cluster) == []
    assert "uncordon" in told(cluster)
    cluster.notice("n0", XID, 79, gpu=0)
    cluster.tick(seconds=400.0)
    assert "deep-test" in cluster.world.nodes[N0].conditions[0].remedy


def test_what_a_person_has_cordoned_health_does_not_open() -> None:
    cluster = cluster_of(1)
    cluster.notice("n0", SignalKind.DISK_FULL, device="/")
    cluster.tick()
    cluster.request(SetNode(node=N0, to="cordon"))
    cluster.tick(seconds=7200.0)
    assert closed(cluster) == ["n0"]


def test_a_full_disk_closes_a_node_and_it_opens_by_itself() -> None:
    cluster = cluster_of(1)
    cluster.notice("n0", SignalKind.DISK_FULL, device="/")
    cluster.tick()
    assert closed(cluster) == ["n0"]
    cluster.tick(seconds=1000.0)
    assert closed(cluster) == []


def test_who_says_that_a_node_is_mended_opens_what_health_has_closed() -> None:
    cluster = cluster_of(1)
    cluster.notice("n0", XID, 64, gpu=0)
    cluster.tick(seconds=20.0)
    cluster.tick(seconds=20.0)
    assert closed(cluster) == ["n0"]
    cluster.request(SetNode(node=N0, to="clear"))
    assert closed(cluster) == []
    cluster.tick()
    assert closed(cluster) == []


def test_an_uncordon_lets_the_node_work_with_what_ails_it_until_that_comes_again() -> (
    None
):
    cluster = cluster_of(1)
    cluster.notice("n0", XID, 79, gpu=0)
    cluster.tick()
    cluster.request(SetNode(node=N0, to="uncordon"))
    cluster.tick(seconds=400.0)
    assert (closed(cluster), suspects(cluster)) == ([], [])
    cluster.notice("n0", XID, 79, gpu=0)
    cluster.tick()
    assert closed(cluster) == ["n0"]


def test_i16_a_decision_beyond_the_breaker_is_refused() -> None:
    cluster = cluster_of(4)
    draft = Draft(cluster.world, cluster.facts, Now(wall=cluster.wall, serving=1.0))
    for number in range(2):
        id = NodeId(f"n{number}")
        draft.nodes[id] = replace(
            cluster.world.nodes[id],
            cordoned=True,
            cordoned_by="health",
            health_cordoned_at=cluster.wall,
        )
    with pytest.raises(InvariantBroken, match="I16"):
        check(draft, HealthRules())


def test_one_request_bars_all_suspects_beyond_the_breaker_and_they_open_again_by_themselves() -> (
    None
):
    cluster = cluster_of(20)
    for number in range(20):
        cluster.notice(f"n{number}", XID, 79, gpu=0)
    cluster.tick()
    assert len(suspects(cluster)) == 18
    cluster.request(CordonSuspects())
    assert (len(closed(cluster)), suspects(cluster)) == (20, [])
    assert all(one.draining for one in cluster.world.nodes.values())
    cluster.nodes[N0] = replace(cluster.nodes[N0], boot=BootId("anew"))
    cluster.tick()
    assert len(closed(cluster)) == 19


def test_with_no_suspect_the_request_changes_nothing() -> None:
    cluster = cluster_of(2)
    cluster.request(CordonSuspects())
    assert closed(cluster) == []


def test_a_verdict_waits_for_no_pass_of_the_scheduler() -> None:
    cluster = cluster_of(2)
    cluster.notice("n0", XID, 79, gpu=0)
    job = cluster.submit(gang())
    assert closed(cluster) == ["n0"]
    assert cluster.world.jobs[job].state == JobState.QUEUED
    cluster.tick()
    assert cluster.world.jobs[job].state == JobState.STARTING


def test_of_a_storm_the_breakers_share_is_barred_and_all_others_are_listed() -> None:
    cluster = cluster_of(300, gpus=1)
    for number in range(150):
        cluster.notice(f"n{number}", XID, 79, gpu=0)
    cluster.tick()
    assert (len(closed(cluster)), len(suspects(cluster))) == (30, 120)
    cluster.request(CordonSuspects())
    assert (len(closed(cluster)), len(suspects(cluster))) == (150, 0)
