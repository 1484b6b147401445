"""Who is put to the proof and when; a check keeps nobody waiting, a gang's bad node is
replaced."""

from dataclasses import replace

import pytest

from corral.domain.active_checks import QUICK, WHOLE, CheckKind, CheckUp, Result
from corral.domain.cause import Cause
from corral.domain.desired_state import DesiredState, Version
from corral.domain.ids import JobId, NodeId
from corral.domain.job_states import JobState
from corral.domain.node import Node
from corral.domain.node_fault import Restriction
from corral.domain.node_signal import OVER, SignalKind
from corral.domain.observed_state import Phase
from corral.domain.requests import CheckNodes
from corral.health.health_rules import HealthRules
from corral.reconcile import wanted_of
from corral.reconcile.active_checks import (
    LONGEST_SECONDS,
    MOST_AT_ONCE,
    SETTLE_SECONDS,
    ring,
)
from corral.store.row_codec import NODE
from tests.worlds import Cluster, gang, node

CHECK = SignalKind.CHECK


def checkable(id: str, gpus: int = 2, **more: object) -> Node:
    one = node(id, gpus)
    return replace(one, inventory=replace(one.inventory, checks=True, **more))  # type: ignore[arg-type]


def cluster_of(count: int, **rules: object) -> Cluster:
    cluster = Cluster(*(checkable(f"n{number}") for number in range(count)))
    cluster.health = HealthRules(check_every_seconds=0, **rules)  # type: ignore[arg-type]
    return cluster


def at(cluster: Cluster, id: str) -> Node:
    return cluster.world.nodes[NodeId(id)]


def word(cluster: Cluster, id: str) -> DesiredState:
    """What the node is told now."""
    held = [one for one in cluster.world.allocations.values() if one.seat.node == id]
    held = [one for one in held if one.state != "RELEASED"]
    heard = cluster.facts.nodes[NodeId(id)]
    return wanted_of(cluster.world, NodeId(id), held, heard, Version(term=1, counter=1))


def doing(cluster: Cluster, id: str) -> CheckUp | None:
    return word(cluster, id).checkup


def ask(cluster: Cluster, *ids: str, kinds: tuple[CheckKind, ...] = WHOLE) -> str:
    nodes = tuple(map(NodeId, ids))
    return f"{cluster.request(CheckNodes(nodes=nodes, kinds=kinds)).sequence}"


def answer(
    cluster: Cluster, id: str, *, wrong: int | None = None, over: int | None = None
) -> None:
    """Products on each GPU, one of which may be wrong, then the end of the round."""
    checkup = doing(cluster, id)
    assert checkup is not None
    for gpu in range(len(at(cluster, id).inventory.gpus)):
        cluster.notice(
            id, CHECK, int(gpu == wrong), gpu=gpu, device="matmul", checkup=checkup.id
        )
    cluster.notice(id, CHECK, over, device=OVER, checkup=checkup.id)
    cluster.tick()


def told(cluster: Cluster) -> list[str]:
    assert cluster.outcome is not None
    return [event.kind for event in cluster.outcome.changes.events]


# -- asked for -----------------------------------------------------------------------------------


def test_an_idle_node_is_told_at_once_and_its_results_are_kept_over_heads() -> None:
    cluster = cluster_of(2)
    number = ask(cluster, "n0")
    checkup = doing(cluster, "n0")
    assert checkup is not None
    assert (checkup.id, checkup.kinds) == (number, WHOLE)
    assert doing(cluster, "n1") is None
    answer(cluster, "n0")
    assert doing(cluster, "n0") is None
    assert [one.result for one in at(cluster, "n0").measures] == [Result.PASSED] * 2
    assert "checked" in told(cluster)
    record, crc = NODE.write(at(cluster, "n0"))
    assert NODE.read(record, crc) == at(cluster, "n0")


def test_a_busy_node_is_checked_when_its_job_has_gone() -> None:
    cluster = cluster_of(1)
    job = cluster.submit(gang())
    cluster.up(job)
    ask(cluster, "n0")
    assert doing(cluster, "n0") is None
    cluster.seen.clear()
    cluster.say(job, Phase.ENDED, exits=())
    cluster.world.allocations.clear()
    cluster.seen.clear()
    cluster.tick()
    assert doing(cluster, "n0") is not None


def test_what_runs_unclaimed_on_a_node_keeps_it_from_being_checked() -> None:
    cluster = cluster_of(1)
    job = cluster.submit(gang())
    cluster.up(job)
    cluster.world.allocations.clear()
    ask(cluster, "n0")
    assert doing(cluster, "n0") is None


def test_what_others_run_on_a_gpu_keeps_its_node_from_being_checked() -> None:
    one = checkable("n0")
    gpus = (replace(one.inventory.gpus[0], taken=True), one.inventory.gpus[1])
    cluster = Cluster(replace(one, inventory=replace(one.inventory, gpus=gpus)))
    ask(cluster, "n0")
    assert doing(cluster, "n0") is None


def test_a_job_takes_a_node_that_is_checked_at_once_and_the_check_is_wanted_no_more() -> (
    None
):
    cluster = cluster_of(1)
    ask(cluster, "n0")
    assert doing(cluster, "n0") is not None
    job = cluster.submit(gang(gpus=2))
    assert cluster.world.jobs[job].state == JobState.STARTING
    assert [launch.key[0] for launch in word(cluster, "n0").run] == [job]
    assert doing(cluster, "n0") is None


def test_who_waits_is_placed_alike_with_and_without_checks() -> None:
    with_checks, without = cluster_of(3), cluster_of(3)
    ask(with_checks, "n0", "n1", "n2")
    without.request(CheckNodes(nodes=(), kinds=WHOLE))
    for cluster in (with_checks, without):
        for number in range(5):
            cluster.submit(gang(f"t{number}", gpus=1))
    seats = [
        {
            id: [seat.node for seat in attempt.seats]
            for id, attempt in one.world.attempts.items()
        }
        for one in (with_checks, without)
    ]
    assert seats[0] == seats[1]


def test_what_has_not_begun_in_time_is_given_up_and_told() -> None:
    cluster = cluster_of(1)
    cluster.up(cluster.submit(gang()))
    ask(cluster, "n0")
    cluster.tick(seconds=61.0)
    assert not at(cluster, "n0").checkups
    assert "unchecked" in told(cluster)


def test_a_round_that_never_ends_is_given_up() -> None:
    cluster = cluster_of(1)
    ask(cluster, "n0")
    cluster.tick(seconds=LONGEST_SECONDS + 1)
    assert not at(cluster, "n0").checkups


def test_links_go_round_the_ring_and_begin_at_both_ends() -> None:
    cluster = cluster_of(3)
    ask(cluster, "n0", "n1", "n2", kinds=(CheckKind.LINK,))
    first, second = doing(cluster, "n0"), doing(cluster, "n1")
    assert first is not None
    assert second is not None
    assert (first.peer, second.peer, first.leads, second.leads) == (
        "n1",
        "n0",
        True,
        False,
    )
    assert (first.address, first.port) == (second.address, second.port)
    assert first.port in at(cluster, "n0").inventory.ports
    assert doing(cluster, "n2") is None
    for id, other in (("n0", "n1"), ("n1", "n0")):
        cluster.notice(
            id,
            CHECK,
            None,
            device=f"link:{other}",
            value=4e10,
            unit="B/s",
            checkup=first.id,
        )
        cluster.notice(id, CHECK, None, device=OVER, checkup=first.id)
    cluster.tick()
    pairs = [
        (one.peer if (one := doing(cluster, id)) else "") for id in ("n0", "n1", "n2")
    ]
    assert sorted(pairs) in (["", "n0", "n2"], ["", "n1", "n2"])


def test_a_link_waits_for_other_links_beyond_the_wait_but_not_for_a_busy_end() -> None:
    cluster = cluster_of(4)
    job = cluster.submit(gang("busy", gpus=2))
    cluster.up(job)
    (busy,) = {
        one.seat.node for one in cluster.world.allocations.values() if one.job == job
    }
    ask(cluster, "n0", "n1", "n2", "n3", kinds=(CheckKind.LINK,))
    cluster.tick(seconds=61.0)
    left = {one.id: sorted((id, one.peer)) for id in ("n0", "n1", "n2", "n3")
            for one in at(cluster, id).checkups}  # fmt: skip
    assert len(left) == 2
    assert not any(busy in ends for ends in left.values())
    cluster.tick(seconds=120.0)
    assert [
        one.id in left
        for id in ("n0", "n1", "n2", "n3")
        for one in at(cluster, id).checkups
    ]
    assert (
        len(
            {
                one.id
                for id in ("n0", "n1", "n2", "n3")
                for one in at(cluster, id).checkups
            }
        )
        == 2
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_each_node_of_a_ring_has_two_neighbours(count: int) -> None:
    names = [NodeId(f"n{number}") for number in range(count)]
    links = ring(names)
    assert len(links) == (count if count > 2 else count - 1)
    ends = [one for link in links for one in link]
    assert count < 3 or all(ends.count(name) == 2 for name in names)


# -- by itself -----------------------------------------------------------------------------------


def suspected(cluster: Cluster, id: str = "n0") -> None:
    cluster.notice(id, SignalKind.LEMON, None)
    cluster.tick()
    cluster.tick()


def test_a_suspected_node_is_tested_when_idle_and_returned_when_it_passes() -> None:
    cluster = cluster_of(2)
    suspected(cluster)
    assert at(cluster, "n0").restriction == Restriction.AVOID
    assert doing(cluster, "n0") is not None
    answer(cluster, "n0")
    assert at(cluster, "n0").restriction == Restriction.OPEN
    cluster.tick()
    assert doing(cluster, "n0") is None


def test_a_suspected_node_that_fails_is_closed_and_stays_so() -> None:
    cluster = cluster_of(2)
    suspected(cluster)
    answer(cluster, "n0", wrong=1)
    assert at(cluster, "n0").cordoned
    assert at(cluster, "n0").cordoned_by == "health"
    ask(cluster, "n1")  # another node's round opens nothing here
    answer(cluster, "n1")
    assert at(cluster, "n0").cordoned


def test_a_suspected_node_that_is_busy_is_let_be() -> None:
    cluster = cluster_of(1)
    cluster.up(cluster.submit(gang()))
    suspected(cluster)
    assert doing(cluster, "n0") is None


def test_a_round_that_work_has_ended_is_asked_for_again() -> None:
    cluster = cluster_of(1)
    suspected(cluster)
    first = doing(cluster, "n0")
    answer(cluster, "n0", over=2)
    cluster.tick()
    again = doing(cluster, "n0")
    assert first is not None
    assert again is not None
    assert again.id != first.id


def test_a_suspect_that_could_not_be_checked_is_tried_again_an_hour_later() -> None:
    cluster = cluster_of(1)
    suspected(cluster)
    checkup = doing(cluster, "n0")
    assert checkup is not None
    cluster.notice("n0", CHECK, 2, gpu=0, device="matmul", checkup=checkup.id)
    cluster.notice("n0", CHECK, None, device=OVER, checkup=checkup.id)
    cluster.tick()
    cluster.tick(seconds=cluster.health.retest_seconds - 5)
    assert doing(cluster, "n0") is None
    assert at(cluster, "n0").restriction == Restriction.AVOID
    cluster.tick(seconds=10)
    assert doing(cluster, "n0") is not None


def test_in_observe_mode_a_failed_node_is_listed_and_takes_work() -> None:
    cluster = cluster_of(2, mode="observe")
    ask(cluster, "n0")
    answer(cluster, "n0", wrong=0)
    assert at(cluster, "n0").suspect
    assert not at(cluster, "n0").cordoned


def test_idle_nodes_are_checked_now_and_again_and_pretend_ones_only_when_asked() -> (
    None
):
    cluster = Cluster(checkable("n0"))
    cluster.tick(seconds=SETTLE_SECONDS - 2)
    assert doing(cluster, "n0") is None
    cluster.tick(seconds=4)
    assert doing(cluster, "n0") is not None
    answer(cluster, "n0")
    cluster.tick(seconds=cluster.health.check_every_seconds - 5)
    assert doing(cluster, "n0") is None
    cluster.tick(seconds=6)
    assert doing(cluster, "n0") is not None
    one = checkable("n0")
    pretend = tuple(replace(gpu, pretend=True) for gpu in one.inventory.gpus)
    other = Cluster(replace(one, inventory=replace(one.inventory, gpus=pretend)))
    other.tick(seconds=10 * 86400.0)
    assert doing(other, "n0") is None


def test_of_many_nodes_whose_turn_it_is_some_are_checked_at_once_and_then_others() -> (
    None
):
    cluster = Cluster(
        *(checkable(f"n{number}", 1) for number in range(MOST_AT_ONCE + 3))
    )
    cluster.tick(seconds=SETTLE_SECONDS + 1)
    first = {id for id in cluster.world.nodes if doing(cluster, id)}
    assert len(first) == MOST_AT_ONCE
    for id in list(first)[:3]:
        answer(cluster, id)
    cluster.tick()
    cluster.tick()
    assert len({id for id in cluster.world.nodes if doing(cluster, id)} - first) == 3


def test_a_node_without_an_agent_that_stays_is_never_asked() -> None:
    cluster = Cluster(node("n0"))
    suspected(cluster)
    cluster.tick(seconds=10 * 86400.0)
    assert not at(cluster, "n0").checkups


# -- before a big gang ---------------------------------------------------------------------------


def big(cluster: Cluster, nodes: int = 2) -> JobId:
    return cluster.submit(gang("big", nodes=nodes, gpus=2))


def running(cluster: Cluster, job: JobId) -> list[str]:
    return [
        id
        for id in cluster.world.nodes
        if job in {one.key[0] for one in word(cluster, id).run}
    ]


def test_a_big_gang_begins_on_none_of_its_nodes_before_all_are_shown_to_be_well() -> (
    None
):
    cluster = cluster_of(2, gang_gpus=4)
    job = big(cluster)
    assert cluster.world.jobs[job].state == JobState.STARTING
    assert running(cluster, job) == []
    assert not word(cluster, "n0").stop
    checkup = doing(cluster, "n0")
    assert checkup is not None
    assert checkup.kinds == QUICK
    answer(cluster, "n0")
    assert running(cluster, job) == []
    answer(cluster, "n1")
    cluster.tick()
    assert running(cluster, job) == ["n0", "n1"]


def test_a_gangs_node_with_a_wrong_hash_is_replaced_before_it_starts() -> None:
    cluster = cluster_of(3, gang_gpus=4)
    job = big(cluster)
    bad, good = cluster.world.attempts[job].nodes
    answer(cluster, bad, wrong=0)
    attempt = cluster.world.attempts[job]
    assert at(cluster, bad).cordoned
    assert (attempt.cause, attempt.failed_on) == (Cause.INFRA, bad)
    assert attempt.culprit == f"GPU 0 of node {bad}"
    cluster.say(job, Phase.REFUSED)  # what an agent says of what never was there
    cluster.tick()
    cluster.seen.clear()
    cluster.tick()
    assert bad not in cluster.world.attempts[job].nodes
    third = next(one for one in cluster.world.attempts[job].nodes if one != good)
    for id in (third, good):
        if doing(cluster, id):
            answer(cluster, id)
    cluster.tick()
    assert sorted(running(cluster, job)) == sorted(cluster.world.attempts[job].nodes)
    assert cluster.world.jobs[job].infra_retries == 1


def test_it_waits_no_longer_than_it_may() -> None:
    cluster = cluster_of(2, gang_gpus=4, gang_seconds=30.0)
    job = big(cluster)
    cluster.tick(seconds=29.0)
    assert running(cluster, job) == []
    cluster.tick(seconds=2.0)
    cluster.tick()
    assert running(cluster, job) == ["n0", "n1"]
    assert not at(cluster, "n0").checkups


def test_nodes_that_were_checked_lately_are_not_checked_again() -> None:
    cluster = cluster_of(2, gang_gpus=4)
    ask(cluster, "n0", "n1")
    answer(cluster, "n0")
    answer(cluster, "n1")
    job = big(cluster)
    assert running(cluster, job) == ["n0", "n1"]


def test_a_small_gang_and_one_where_it_is_off_begin_at_once() -> None:
    cluster = cluster_of(2, gang_gpus=4)
    small = cluster.submit(gang(gpus=1))
    assert len(running(cluster, small)) == 1
    off = cluster_of(2)
    assert running(off, big(off)) == ["n0", "n1"]


def test_in_observe_mode_a_gang_begins_on_the_node_that_failed_too() -> None:
    cluster = cluster_of(2, gang_gpus=4, mode="observe")
    job = big(cluster)
    answer(cluster, "n0", wrong=0)
    answer(cluster, "n1")
    cluster.tick()
    assert running(cluster, job) == ["n0", "n1"]


def test_a_gated_gang_that_is_cancelled_goes_at_once() -> None:
    from corral.domain.requests import Cancel

    cluster = cluster_of(2, gang_gpus=4)
    job = big(cluster)
    cluster.request(Cancel(job=job))
    assert {stop.key[0] for stop in word(cluster, "n0").stop} == {job}
    cluster.say(job, Phase.REFUSED)
    cluster.tick()
    assert job not in cluster.world.jobs or cluster.world.jobs[job].is_final
    cluster.seen.clear()
    cluster.tick()
    assert not at(cluster, "n0").checkups
