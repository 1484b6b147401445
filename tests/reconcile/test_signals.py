"""What nodes notice of themselves is told once, however often they say it."""

from dataclasses import replace

from corral.domain.facts import Facts, NodeFacts
from corral.domain.ids import BootId, ClusterId, NodeId
from corral.domain.node import Node
from corral.domain.resources import Inventory
from corral.domain.signals import Signal, SignalKind
from corral.domain.world import World
from corral.reconcile import Now, reconcile

N1 = NodeId("n1")
XID = Signal(number=7, at=10.0, kind=SignalKind.XID, code=79, gpu=3, text="XID 79 on GPU 3")


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
    world = World(cluster=ClusterId("c"), term=1, nodes={N1: Node(id=N1, boot=BootId("b"))})
    assert signals_told(world, heard(XID)) == ["node n1: XID 79 on GPU 3"]
    assert world.nodes[N1].signals_taken == 7
    assert signals_told(world, heard(XID)) == []
    later = replace(XID, number=9, text="XID 48 on GPU 0")
    assert signals_told(world, heard(XID, later)) == ["node n1: XID 48 on GPU 0"]
