"""What an engine could bring: a gang that fits then is waited for, and not refused."""

import pytest

from corral.control.request_checks import check_specs
from corral.control.scale_up import awaited
from corral.domain.errors import CannotFit
from corral.domain.job import CheckpointRule
from corral.domain.node import NodeKind
from corral.domain.reason_code import ReasonCode
from corral.schedule.waiting import Reason
from tests.worlds import Cluster, gang, inventory, node

KIND = NodeKind(name="more", inventory=inventory(4), most=2)


def test_a_gang_that_only_more_nodes_could_hold_is_not_refused() -> None:
    world = Cluster(node("n1")).world
    for spec in (
        gang(gpus=4, nodes=2),
        gang(gpus=2, nodes=3),
        gang(gpus=4, nodes=2, checkpoint=CheckpointRule(path="/shared/ckpt")),
    ):
        with pytest.raises(CannotFit):
            check_specs(world, [spec], {})
        check_specs(world, [spec], {}, [KIND])


def test_what_even_those_could_not_hold_is_refused() -> None:
    world = Cluster(node("n1")).world
    for spec in (gang(gpus=4, nodes=3), gang(gpus=8)):
        with pytest.raises(CannotFit, match="no node|only 1 of the 1 nodes"):
            check_specs(world, [spec], {}, [KIND])


def test_it_is_told_that_more_nodes_are_waited_for() -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(gpus=4, nodes=2))
    assert cluster.outcome is not None
    assert cluster.outcome.reasons is not None
    never = cluster.outcome.reasons[id]
    told = awaited(cluster.world, cluster.world.jobs[id], never, [KIND])
    assert (never.code, told and told.code) == ("NeverFits", "Resources")
    assert told
    assert "the engine can add" in told.sentence
    assert awaited(cluster.world, cluster.world.jobs[id], never, []) is never
    full = Reason(code=ReasonCode.RESOURCES, sentence="full")
    assert awaited(cluster.world, cluster.world.jobs[id], full, [KIND]) is full
