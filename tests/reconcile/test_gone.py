"""Nodes that their engine has no more: an autoscaler took them, or there are fewer
now."""

import pytest

from corral.control.request_checks import check_specs
from corral.domain.errors import CannotFit
from corral.domain.ids import NodeId
from corral.domain.job_states import JobState
from corral.domain.node import Liveness
from corral.domain.observed_state import Phase
from corral.domain.requests import SetNode
from tests.worlds import Cluster, gang, node

N1, N2 = NodeId("n1"), NodeId("n2")


def lose(cluster: Cluster, id: NodeId, *, gone: bool = True) -> None:
    """Its engine proves it dead, and has it no more, or may have it again."""
    cluster.mute.add(id)
    cluster.facts.proofs[id] = "it has been deleted"
    if gone:
        cluster.facts.gone.add(id)
    cluster.tick()


def happened(cluster: Cluster) -> list[str]:
    assert cluster.outcome is not None
    return [event.kind for event in cluster.outcome.changes.events]


def test_a_node_that_is_gone_is_none_of_the_cluster_and_one_that_is_dead_is() -> None:
    cluster = Cluster(node("n1"), node("n2", gpus=4), node("n3"))
    lose(cluster, NodeId("n3"), gone=False)
    lose(cluster, N2)
    assert set(cluster.world.nodes) == {"n1", "n3"}
    assert happened(cluster) == ["node_dead", "node_gone"]
    assert cluster.world.nodes[NodeId("n3")].liveness == Liveness.DEAD
    with pytest.raises(CannotFit):
        check_specs(cluster.world, [gang(gpus=4)], {})


def test_what_ran_on_it_goes_on_elsewhere_before_it_is_forgotten() -> None:
    cluster = Cluster(node("n1"), node("n2"))
    wide = cluster.submit(gang(nodes=2, gpus=2))
    cluster.up(wide)
    lose(cluster, N2)
    assert set(cluster.world.nodes) == {"n1"}
    assert cluster.world.jobs[wide].state == JobState.RECOVERING
    cluster.say(wide, Phase.ENDED, on="n1")
    cluster.tick()
    assert cluster.world.jobs[wide].state == JobState.QUEUED
    assert not cluster.world.allocations


def test_only_what_is_believed_dead_is_forgotten() -> None:
    cluster = Cluster(node("n1"), node("n2"))
    cluster.facts.gone.add(N2)
    cluster.tick()
    assert set(cluster.world.nodes) == {"n1", "n2"}


def test_a_node_that_comes_under_a_name_that_is_gone_is_a_new_one() -> None:
    cluster = Cluster(node("n1"), node("n2"))
    cluster.request(SetNode(node=N2, to="cordon"))
    lose(cluster, N2)
    cluster.facts.gone.clear()
    cluster.facts.proofs.clear()
    cluster.facts.nodes.pop(N2, None)
    cluster.tick()
    assert set(cluster.world.nodes) == {"n1"}
    cluster.mute.clear()
    cluster.tick()
    assert cluster.world.nodes[N2].takes_work
