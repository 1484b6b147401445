"""A part is told its launch when the batch system has said all that it needs, and not
before."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from corral.domain.desired_state import DesiredState, Launch
from corral.domain.ids import ClusterId, NodeId
from corral.domain.observed_state import AttemptKey
from corral.domain.pilot import part_of
from corral.engines.batch.engine import HeadLinks, LendingEngine
from corral.engines.batch.interfaces import BatchSnapshot, PartFiles, TicketState
from corral.wire.node import NodeSettings
from tests.engines.lending.test_desk import KEY, A, B, launch_of, look, word
from tests.patience import PATIENCE_SECONDS


class Addresses:
    """Implements lending.Driver; `known` are the addresses of the gang, when there are
    any."""

    def __init__(self) -> None:
        self.known: tuple[str, ...] = ()

    async def look(self) -> BatchSnapshot:
        return look(TicketState.RUNNING, nodes=(A, B))

    async def submit(
        self, gang: Sequence[Launch], parts: Mapping[NodeId, PartFiles]
    ) -> None: ...

    async def withhold(self, key: AttemptKey) -> None: ...

    async def cancel(self, key: AttemptKey) -> None: ...

    async def forget(self, key: AttemptKey) -> None: ...

    def fitted(self, launch: Launch) -> Launch | None:
        return replace(launch, nodes=self.known) if self.known else None

    def settings_of(self, part: NodeId, launch: Launch) -> NodeSettings:
        return NodeSettings(node=part, head_file="/head.json")

    async def close(self) -> None: ...


async def nothing(*_: object) -> None: ...


def test_a_word_waits_for_the_addresses_and_goes_out_when_they_are_known() -> None:
    driver, pushed = Addresses(), dict[NodeId, DesiredState]()
    links = HeadLinks(
        push=lambda wanted: pushed.update({wanted.node: wanted}),
        hear=lambda facts: None,
        register=nothing,
        forget=nothing,
        wake=lambda: None,
        serving=lambda: 0.0,
        cluster=lambda: ClusterId("c"),
        hears=lambda node: True,
    )
    part = part_of(A, KEY)

    async def run() -> None:
        engine = LendingEngine(
            name="fitting", cannot={}, driver=driver, links=links, look_seconds=0.01
        )
        await engine.start()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while engine.desk.looked_at is None:
                await asyncio.sleep(0.01)
            engine.apply(word(A, 1, run=(launch_of(A, 0),)))
            assert engine.part_word(part) is None
            assert part not in pushed
            driver.known = ("10.0.0.1", "10.0.0.2")
            engine.look_soon()
            while part not in pushed:
                await asyncio.sleep(0.01)
        assert pushed[part].run[0].nodes == driver.known
        await engine.down(kill=False)

    asyncio.run(run())
