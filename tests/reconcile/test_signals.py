"""What nodes notice of themselves is told once, however often they say it."""

from dataclasses import replace

from corral.domain.ids import AttemptNumber, BootId, ClusterId, JobId, NodeId
from corral.domain.node import MOST_PARTS, Node
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.observed_state import Facts, NodeFacts
from corral.domain.pilot import part_of
from corral.domain.resources import Inventory
from corral.domain.world import World
from corral.reconcile import Now, reconcile

N1 = NodeId("n1")
XID = Signal(
    number=7, at=10.0, kind=SignalKind.XID, code=79, gpu=3, text="XID 79 on GPU 3"
)


def heard(*signals: Signal) -> Facts:
    word = NodeFacts(
        node=N1, boot=BootId("b"), heard_at=0.0, inventory=Inventory(), signals=signals
    )
    return Facts(nodes={N1: word})


def signals_told(world: World, facts: Facts) -> list[str]:
    changes = reconcile(world, facts, (), Now(wall=20.0, serving=1.0)).changes
    world.apply(changes)
    return [event.text for event in changes.events if event.kind.startswith("signal_")]


def test_a_signal_is_told_once_however_often_it_is_said() -> None:
    world = World(
        cluster=ClusterId("c"), term=1, nodes={N1: Node(id=N1, boot=BootId("b"))}
    )
    assert signals_told(world, heard(XID)) == ["node n1: XID 79 on GPU 3"]
    assert world.nodes[N1].signals_taken == 7
    assert signals_told(world, heard(XID)) == []
    later = replace(XID, number=9, text="XID 48 on GPU 0")
    assert signals_told(world, heard(XID, later)) == ["node n1: XID 48 on GPU 0"]


def test_signals_of_two_parts_count_each_for_itself_and_each_is_told_once() -> None:
    world = World(
        cluster=ClusterId("c"), term=1, nodes={N1: Node(id=N1, boot=BootId("b"))}
    )
    parts = [part_of(N1, (JobId(name), AttemptNumber(1))) for name in ("ja", "jb")]
    first, second = (
        replace(
            XID,
            number=1,
            told_by=part,
            gpu=gpu,
            uuid=f"GPU-{gpu}",
            text=f"XID on {gpu}",
        )
        for gpu, part in enumerate(parts)
    )
    assert signals_told(world, heard(first)) == ["node n1: XID on 0"]
    assert signals_told(world, heard(first, second)) == ["node n1: XID on 1"]
    assert signals_told(world, heard(first, second)) == []
    node = world.nodes[N1]
    assert [node.taken_of(part) for part in (*parts, None)] == [1, 1, 0]
    assert {one.uuid for one in node.conditions} == {"GPU-0", "GPU-1"}


def test_of_the_parts_of_a_node_those_that_were_heard_last_are_remembered() -> None:
    node = Node(id=N1)
    names = [
        part_of(N1, (JobId(f"j{at}"), AttemptNumber(1))) for at in range(MOST_PARTS + 1)
    ]
    for name in names:
        node = node.taking([replace(XID, number=3, told_by=name)])
        node = node.taking([replace(XID, number=5, told_by=names[1])])
    assert len(node.parts_taken) == MOST_PARTS
    assert [node.taken_of(name) for name in names[:3]] == [0, 5, 3]
