"""Where a job goes by its requests, as reconcile remembers it."""

from dataclasses import replace

import pytest

from corral.domain.attempt import Exit, SeatState
from corral.domain.errors import InvariantBroken
from corral.domain.ids import AttemptNumber, BootId, NodeId
from corral.domain.job import Retry
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase
from corral.domain.placement_constraints import Constraint, PlaceRule
from corral.domain.requests import SetLabels
from corral.reconcile import Now
from corral.reconcile.cache.capacity import SUSPECTED_SECONDS
from corral.reconcile.changeset import Draft
from corral.reconcile.invariants import check
from tests.worlds import Cluster, gang, node

CRASH = Exit(code=7, at=1.0)


def test_the_next_attempt_avoids_the_node_that_the_last_one_failed_on() -> None:
    cluster = Cluster(node("n1"), node("n2"))
    id = cluster.submit(gang(gpus=2, retry=Retry(user=3)))
    first = cluster.world.attempts[id].nodes
    cluster.up(id)
    cluster.end(id, CRASH)
    second = cluster.world.attempts[id].nodes
    assert (cluster.world.jobs[id].failed_on, second != first) == (first, True)
    cluster.up(id)
    cluster.end(id, CRASH)
    assert cluster.world.jobs[id].state == JobState.STARTING, (
        "where it must be, it is taken"
    )


def test_a_node_that_failed_is_the_last_for_all_until_that_is_long_ago() -> None:
    cluster = Cluster(node("n1"), node("n2"))
    id = cluster.submit(gang(gpus=2))
    [bad] = cluster.world.attempts[id].nodes
    cluster.up(id)
    cluster.nodes[bad] = replace(cluster.nodes[bad], boot=BootId("anew"))
    cluster.seen.clear()
    cluster.tick()
    cluster.up(id)
    cluster.end(id, Exit(code=0, at=2.0))
    assert cluster.world.nodes[bad].failed_at
    cluster.seen.clear()
    other = cluster.submit(gang("other"))
    assert bad not in cluster.world.attempts[other].nodes
    cluster.tick(seconds=SUSPECTED_SECONDS)
    later = cluster.submit(gang("later"))
    assert cluster.world.attempts[later].nodes != (bad,), (
        "the fuller node is the better fit"
    )
    cluster.submit(gang("last", gpus=2))
    assert {one.seat.node for one in cluster.world.allocations.values()} == {"n1", "n2"}


def test_a_node_stays_exclusive_until_its_ranks_are_seen_gone() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(place=PlaceRule(exclusive=True)))
    cluster.up(id)
    other = cluster.submit(gang("other"))
    assert cluster.world.jobs[other].state == JobState.QUEUED
    cluster.say(id, Phase.ENDED, exits=((0, Exit(code=0, at=1.0)),))
    cluster.tick()
    assert cluster.world.jobs[other].state == JobState.STARTING


def test_an_exclusive_node_that_would_be_shared_stops_the_commit() -> None:
    cluster = Cluster(node("n1"))
    cluster.submit(gang(place=PlaceRule(exclusive=True)))
    [held] = cluster.world.allocations.values()
    seat = replace(held.seat, gpus=(1,), exclusive=False)
    draft = Draft(cluster.world, cluster.facts, Now(wall=1.0, serving=1.0))
    other = cluster.submit(gang("other"))
    draft.put(replace(cluster.world.jobs[other], attempt=AttemptNumber(1)))
    stranger = replace(held, job=other, seat=seat, state=SeatState.HELD)
    draft.allocations[stranger.key] = stranger
    with pytest.raises(InvariantBroken, match="exclusive"):
        check(draft)


def test_a_label_that_is_set_lets_in_who_waits_for_it_and_stays_over_what_is_declared() -> (
    None
):
    cluster = Cluster(node("n1"), node("n2"))
    rule = PlaceRule(constraints=(Constraint(label="zone", values=("b",)),))
    id = cluster.submit(gang(place=rule))
    assert cluster.world.jobs[id].state == JobState.QUEUED
    cluster.request(SetLabels(node=NodeId("n2"), labels=(("zone", "b"),)))
    assert cluster.world.attempts[id].nodes == (NodeId("n2"),)
    cluster.up(id)
    declared = replace(cluster.nodes[NodeId("n2")].inventory, labels=(("zone", "a"),))
    cluster.nodes[NodeId("n2")] = replace(
        cluster.nodes[NodeId("n2")], inventory=declared
    )
    cluster.tick()
    assert cluster.world.nodes[NodeId("n2")].labels["zone"] == "b"
    cluster.request(SetLabels(node=NodeId("n2"), labels=(("zone", None),)))
    assert "zone" not in cluster.world.nodes[NodeId("n2")].labels
    assert cluster.world.jobs[id].state == JobState.RUNNING, "who runs there runs on"
