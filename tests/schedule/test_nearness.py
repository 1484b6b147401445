"""A gang waits for a rack, and then for a pod, as long as an operator says: the
columns' rule."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import JobId
from corral.domain.node import Node
from corral.domain.placement_constraints import Level, Mode, PlaceRule, Topology
from corral.domain.queue_tree import QueueTree
from corral.domain.resources import Resources, Shape
from corral.schedule import Decision, NodeRoom, NodeTypes, Waiting, decide
from corral.schedule.arrays.cluster import ANYWHERE, POD, RACK
from corral.schedule.columns.locality import LocalityDelay, level_for
from corral.schedule.placement.locality import Nearness
from corral.schedule.quota.balances import Standing
from tests.worlds import node

RACKS = ["a", "a", "b", "b", "c", "c"]
PODS = ["east", "east", "east", "east", "west", "west"]
SINCE = 1000.0


def lain(racks: Sequence[str] = RACKS, pods: Sequence[str] = PODS) -> list[Node]:
    """Nodes of two GPUs, in these racks and pods."""
    return [
        replace(node(f"n{place}"), set_labels=(("pod", pod), ("rack", rack)))
        for place, (rack, pod) in enumerate(zip(racks, pods, strict=True))
    ]


def gang(nodes: int, *, mode: Mode = Mode.PREFER, name: str = "j1") -> Waiting:
    shape = Shape(nodes=nodes, resources=Resources(gpu_millis=2000))
    rule = PlaceRule(topology=Topology(mode=mode))
    return Waiting(
        job=JobId(name),
        shapes=(shape,),
        priority=0,
        order=(1, 0),
        since=SINCE,
        place=rule,
    )


def decided(
    gangs: Sequence[Waiting],
    *,
    waited: float,
    rack: float = 60.0,
    pod: float = 600.0,
    taken: Sequence[int] = (0, 2),
) -> Decision:
    nodes = lain()
    rooms = [NodeRoom(one) for one in nodes]
    for place in taken:
        seat = rooms[place].seat(Resources(gpu_millis=2000))
        assert seat is not None
        rooms[place].take(seat)
    fleet = NodeTypes(nodes)
    tree = QueueTree(rack_locality_delay_seconds=rack, pod_locality_delay_seconds=pod)
    standing = Standing(
        tree, capacity=fleet.capacity, others={one.queue for one in gangs}
    )
    return decide(rooms, gangs, fleet=fleet, now=SINCE + waited, standing=standing)


def where(decision: Decision) -> list[str]:
    return sorted(seat.node for one in decision.placed for seat in one.seats)


def test_a_rack_is_waited_for_then_a_pod_then_anything_is_taken() -> None:
    three = [gang(3)]  # no rack would hold it, even idle
    found = decided(three, waited=0.0, taken=(0, 1))
    assert where(found) == []
    assert found.reasons()[JobId("j1")].sentence == (
        "the job waits up to 10 min for nodes in one pod; now it would fit only across 2 pods"
    )
    assert len(where(decided(three, waited=600.0, taken=(0, 1)))) == 3
    two = [gang(2)]
    found = decided(two, waited=59.0, taken=(0, 2, 4))
    assert found.reasons()[JobId("j1")].sentence == (
        "the job waits up to 1 min for nodes in one rack; now it would fit only across 2 racks"
    )
    assert where(decided(two, waited=60.0, taken=(0, 2, 4))) == ["n1", "n3"], "one pod"
    assert where(decided(two, waited=59.0)) == ["n4", "n5"], "there is one"


def test_who_wants_no_nearness_or_is_of_one_node_or_of_no_patient_cluster_starts_at_once() -> (
    None
):
    taken = (0, 2, 4)
    assert (
        len(where(decided([gang(2, mode=Mode.SPREAD)], waited=0.0, taken=taken))) == 2
    )
    assert len(where(decided([gang(1)], waited=0.0, taken=taken))) == 1
    assert (
        len(where(decided([gang(2)], waited=0.0, rack=0.0, pod=0.0, taken=taken))) == 2
    )
    assert len(where(decided([gang(6)], waited=0.0, taken=()))) == 6, (
        "none could ever hold it"
    )


def test_others_pass_one_that_waits_for_a_rack() -> None:
    small = replace(gang(1, name="j2"), order=(2, 0))
    found = decided([gang(2), small], waited=0.0, taken=(0, 2, 4))
    assert [one.job for one in found.placed] == ["j2"]


seconds = st.floats(0, 1000)


@given(st.sampled_from([2, 3, 6]), seconds, seconds, seconds)
def test_it_is_the_rule_of_the_columns(
    nodes: int, waited: float, rack: float, more: float
) -> None:
    nearest = {2: RACK, 3: POD, 6: ANYWHERE}[nodes]
    level = level_for(nearest, waited, LocalityDelay(rack, rack + more))
    tree = QueueTree(
        rack_locality_delay_seconds=rack, pod_locality_delay_seconds=rack + more
    )
    rooms = [NodeRoom(one) for one in lain()]
    one = replace(gang(nodes), since=0.0)
    known = Nearness(rooms, NodeTypes(lain()), tree, waited).levels(one, one.shapes)
    assert (known or (None,)) == (
        {RACK: Level.RACK, POD: Level.POD, ANYWHERE: None}[level],
    )
