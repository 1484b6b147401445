"""What a lending engine does while its batch system is still being asked."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from corral.domain.desired_state import Launch
from corral.domain.errors import StoreTrouble, Trouble
from corral.domain.ids import ClusterId, NodeId
from corral.domain.observed_state import AttemptKey
from corral.engines.batch.engine import HeadLinks, LendingEngine, Pause
from corral.engines.batch.interfaces import BatchSnapshot, PartFiles
from corral.wire.node import NodeSettings
from tests.engines.lending.test_desk import KEY, A, B, launch_of, look, settle_on, word
from tests.patience import PATIENCE_SECONDS


class Slow:
    """A driver whose looks end when they are let; it notes what it was asked for."""

    def __init__(self) -> None:
        self.may_look = asyncio.Event()
        self.looks = 0
        self.did: list[str] = []
        self.refuses = False
        self.is_silent = True
        self.troubles: tuple[str, ...] = ()

    async def look(self) -> BatchSnapshot:
        self.looks += 1
        if self.refuses:
            raise Trouble("no route to host", is_silence=self.is_silent)
        await self.may_look.wait()
        return replace(look(), troubles=self.troubles)

    async def submit(
        self, gang: Sequence[Launch], parts: Mapping[NodeId, PartFiles]
    ) -> None:
        self.did.append("submit")

    async def withhold(self, key: AttemptKey) -> None:
        self.did.append("withhold")

    async def cancel(self, key: AttemptKey) -> None:
        self.did.append("cancel")
        if self.refuses:
            raise StoreTrouble("no route to host")

    async def forget(self, key: AttemptKey) -> None:
        self.did.append("forget")

    def fitted(self, launch: Launch) -> Launch | None:
        return launch

    def settings_of(self, part: NodeId, launch: Launch) -> NodeSettings:
        return NodeSettings(node=part, head_file="/head.json")

    async def close(self) -> None: ...


async def nothing(*_: object) -> None: ...


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not true():
            await asyncio.sleep(0.005)


def links() -> HeadLinks:
    return HeadLinks(
        push=lambda wanted: None,
        hear=lambda facts: None,
        register=nothing,
        forget=nothing,
        wake=lambda: None,
        serving=lambda: 0.0,
        cluster=lambda: ClusterId("c"),
    )


def engine_over(driver: Slow) -> LendingEngine:
    return LendingEngine(
        name="slow", cannot={}, driver=driver, links=links(), look_seconds=0.01
    )


def test_a_batch_system_that_does_not_answer_is_told_for_as_long() -> None:
    async def run() -> None:
        driver = Slow()
        driver.may_look.set()
        driver.refuses = True
        engine = engine_over(driver)
        await engine.start()
        await until(lambda: engine.trouble == "Slow does not answer: no route to host")
        driver.is_silent = False
        said = "Slow cannot be queried: no route to host"
        await until(lambda: engine.trouble == said)
        driver.refuses = False
        await until(lambda: not engine.trouble)
        await engine.down(kill=False)

    asyncio.run(run())


def test_what_of_a_batch_system_cannot_be_used_is_told_while_the_rest_goes_on() -> None:
    async def run() -> None:
        driver = Slow()
        driver.may_look.set()
        driver.troubles = ("namespace a: gone", "namespace b: forbidden")
        engine = engine_over(driver)
        await engine.start()
        said = "Slow: namespace a: gone; Slow: namespace b: forbidden"
        await until(lambda: engine.trouble == said)
        engine.apply(word(A, 1, run=(launch_of(A, 0, (A,)),)))
        await until(lambda: driver.did == ["submit"])
        driver.troubles = ()
        await until(lambda: not engine.trouble)
        await engine.down(kill=False)

    asyncio.run(run())


def test_a_batch_system_that_says_nothing_at_all_is_told_of_before_it_has_been_given_up() -> (
    None
):
    async def run() -> None:
        driver = Slow()
        engine = replace(engine_over(driver), late_seconds=0.01)
        await engine.start()
        await until(lambda: engine.trouble == "Slow has not answered for 0.01 s")
        driver.may_look.set()
        await until(lambda: not engine.trouble)
        await engine.down(kill=False)

    asyncio.run(run())


def test_a_gang_is_handed_over_while_a_look_is_under_way_and_forgotten_only_after_it() -> (
    None
):
    async def run() -> None:
        driver = Slow()
        engine = engine_over(driver)
        driver.may_look.set()
        await engine.start()
        await until(lambda: engine.desk.looked_at is not None)
        driver.may_look.clear()
        seen = driver.looks
        await until(lambda: driver.looks > seen)
        for rank, node in enumerate((A, B)):
            engine.apply(word(node, 1, run=(launch_of(node, rank),)))
        await until(lambda: engine.desk.attempts[KEY].submitted)
        assert driver.did == ["submit"]
        engine.desk.refused(KEY, "no", infra=False)
        settle_on(engine.desk, 0.0, A, B)
        engine.apply(word(A, 4, settled=(KEY,)))
        assert engine.desk.due(0.0).forget == (KEY,)
        await asyncio.sleep(0)
        assert not engine.is_empty()
        driver.may_look.set()
        await until(engine.is_empty)
        assert driver.did == ["submit", "forget"]
        await engine.down(kill=False)

    asyncio.run(run())


def test_a_call_that_fails_is_tried_again_after_a_pause_that_grows() -> None:
    pause, at = Pause(), 100.0
    waits = []
    for _ in range(7):
        pause = pause.after_failure(at)
        waits.append(pause.until - at)
    assert waits == [1, 2, 4, 8, 16, 30, 30]

    async def run() -> None:
        driver = Slow()
        driver.refuses = True
        engine = engine_over(driver)
        for _ in range(3):
            assert not await engine._try_action(driver.cancel, "cancel", KEY)
        assert driver.did == ["cancel"]
        # by what is done, and of what
        assert not await engine._try_action(driver.forget, "cancel", KEY)
        assert await engine._try_action(driver.forget, "forget", KEY)

    asyncio.run(run())
