"""Fault signals of nodes: broken GPUs, flapping ports, full disks."""

from collections.abc import Mapping
from typing import Final

from corral.domain.ids import NodeId
from corral.domain.node_signal import Signal, SignalKind
from corral.simulate.node import SimulatedNode
from corral.simulate.world import Stage

XIDS: Final = (79, 94, 95, 119, 48, 63, 31, 43)
ENDING: Final = (79, 94, 95, 119, 48)  # these end who is on that GPU
SHARE: Final = 0.25  # of all worlds
STORM: Final = 0.2  # of those: all nodes at once


class Ills:
    """Draws at random which fault signals the nodes send, from a separate random
    stream. A GPU that reports a fault continues to compute, so only the head decides
    what happens to its ranks."""

    def __init__(self, stage: Stage, nodes: Mapping[NodeId, SimulatedNode]) -> None:
        self._stage = stage
        self._nodes = nodes
        self._chance = stage.stream("ills")

    def plan(self, until: float) -> None:
        chance = self._chance
        if chance.random() >= SHARE:
            return
        for _ in range(chance.choice([1, 3, 6])):
            self._stage.loop.later(chance.uniform(1.0, until), self._notice_one)
        if chance.random() < STORM:
            self._stage.loop.later(chance.uniform(1.0, until), self._inject_xid_storm)

    def _notice_one(self) -> None:
        node = self._nodes[self._chance.choice(sorted(self._nodes))]
        kind = self._chance.choice(["xid", "xid", "xid", "flaps", "disk"])
        if kind == "flaps":
            for wait in (0.0, 1.0, 2.0):
                self._stage.loop.later(
                    wait, self._notice, node, SignalKind.PORT_DOWN, None, None
                )
        elif kind == "disk":
            self._notice(node, SignalKind.DISK_FULL, None, None)
        else:
            gpu = self._chance.randrange(self._stage.gpus)
            self._notice(node, SignalKind.XID, self._chance.choice(XIDS), gpu)

    def _inject_xid_storm(self) -> None:
        code = self._chance.choice(ENDING)
        for node in self._nodes.values():
            self._notice(node, SignalKind.XID, code, 0)

    def _notice(
        self, node: SimulatedNode, kind: SignalKind, code: int | None, gpu: int | None
    ) -> None:
        machine, evidence = node.machine, self._stage.evidence
        if not machine.has_power:
            return
        on_it = [
            attempt_alive
            for attempt_alive in evidence.on_node(node.id)
            if gpu is None or gpu in attempt_alive.seat.gpus
        ]
        text = f"{kind} {code} on GPU {gpu}" if gpu is not None else str(kind)
        self._stage.tell(f"{node.id} notices {text}")
        for alive in on_it:
            if kind == SignalKind.XID and code in ENDING:
                evidence.faulty[alive.key] = f"{node.id} reported {text}"
        machine.disk.signals.append(
            Signal(
                number=len(machine.disk.signals) + 1,
                at=machine.wall(),
                kind=kind,
                text=text,
                code=code,
                gpu=gpu,
                attempts=tuple(attempt_alive.key for attempt_alive in on_it),
            )
        )
        machine.changed()
