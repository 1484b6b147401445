"""The heads of one world: which head leads, which one answers a connection, and which
one is started again."""

from collections.abc import Callable, Iterator, Mapping

from corral.control.services import ServiceTraffic
from corral.domain.ids import NodeId
from corral.ports.store import Store
from corral.simulate.head import HeartbeatRecorded, SimulatedHead
from corral.simulate.machine import SimulatedMachine
from corral.simulate.virtual_loop import inside
from corral.simulate.world import Stage


class SimulatedHeads:
    """All heads that were ever started, in the order of their start."""

    def __init__(
        self,
        stage: Stage,
        store: Store,
        machines: Mapping[NodeId, SimulatedMachine],
        heard: HeartbeatRecorded,
        traffic: Callable[[], ServiceTraffic | None] = lambda: None,
    ) -> None:
        self._stage = stage
        self._store = store
        self._machines = machines
        self._heard = heard
        self._traffic = traffic
        self._all: list[SimulatedHead] = []

    def __iter__(self) -> Iterator[SimulatedHead]:
        return iter(self._all)

    def start(self) -> None:
        head = SimulatedHead(
            self._stage,
            len(self._all) + 1,
            store=self._store,
            machines=self._machines,
            heard=self._heard,
            ended=self._ended,
            traffic=self._traffic(),
        )
        self._all.append(head)
        head.begin()

    def _ended(self) -> None:
        self._stage.loop.later(
            self._stage.chance.choice([0.1, 1.0, 6.0]), self.keep_one
        )

    def keep_one(self) -> None:
        if not any(head.process.alive for head in self._all):
            self.start()

    def leading(self) -> SimulatedHead | None:
        """Return the newest serving head, or None."""
        return next((head for head in reversed(self._all) if head.serves), None)

    def here(self) -> SimulatedHead:
        """Return the head whose code is running now."""
        return next(head for head in self._all if head.process is inside())

    def to_dial(self) -> SimulatedHead | None:
        """Return the head that an agent reaches at the address: with two heads, either
        one. None if no head serves."""
        serving = [
            head for head in self._all if head.serves and not head.process.paused
        ]
        if len(serving) > 1 and self._stage.chance.random() < 0.3:
            return serving[0]
        return serving[-1] if serving else None

    def wake(self) -> None:
        """Wake all heads, because the engine has seen a change."""
        for head in self._all:
            head.process.post(head.control.wake)
