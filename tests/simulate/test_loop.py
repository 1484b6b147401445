"""Virtual time, and processes that end between two instructions."""

import asyncio

import pytest

from corral.simulate.virtual_loop import SimulatedProcess, VirtualLoop


class World:
    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.loop = VirtualLoop(self.errors.append)
        self.said: list[tuple[float, str]] = []

    def say(self, text: str) -> None:
        self.said.append((round(self.loop.time(), 3), text))

    def run(self, seconds: float) -> None:
        self.loop.later(seconds, self.loop.stop)
        self.loop.run_forever()


@pytest.fixture
def world() -> World:
    return World()


def test_time_passes_only_from_event_to_event(world: World) -> None:
    world.loop.later(86_400.0, world.say, "a day")
    world.loop.later(1.0, world.say, "a second")
    world.run(100_000.0)
    assert world.said == [(1.0, "a second"), (86_400.0, "a day")]
    world.loop.close()


def test_a_killed_process_runs_no_further_instruction(world: World) -> None:
    process = SimulatedProcess(world.loop, "one")

    async def live() -> None:
        try:
            while True:
                world.say("alive")
                await asyncio.sleep(1.0)
        finally:
            world.say("cleaned up")

    process.start(live())
    process.after(1.5, world.say, "a timer")
    world.loop.later(1.2, process.kill)
    world.run(5.0)
    assert world.said == [(0.0, "alive"), (1.0, "alive")]
    process.post(world.say, "a message")
    assert len(world.said) == 2
    world.loop.close()


def test_a_stopped_process_takes_in_what_came_when_it_goes_on_in_order(
    world: World,
) -> None:
    process = SimulatedProcess(world.loop, "one")
    process.after(2.0, world.say, "timer")
    world.loop.later(1.0, process.pause)
    world.loop.later(1.5, process.post, world.say, "first")
    world.loop.later(2.5, process.post, world.say, "second")
    world.loop.later(4.0, process.resume)
    world.run(5.0)
    assert world.said == [(4.0, "first"), (4.0, "timer"), (4.0, "second")]
    world.loop.close()


def test_what_a_process_has_sent_outlives_it(world: World) -> None:
    process = SimulatedProcess(world.loop, "one")
    process.post(world.loop.later, 1.0, world.say, "arrived")
    process.kill()
    world.run(2.0)
    assert world.said == [(1.0, "arrived")]
    world.loop.close()


def test_tasks_that_a_process_starts_inside_end_with_it(world: World) -> None:
    process = SimulatedProcess(world.loop, "one")

    async def inner() -> None:
        await asyncio.sleep(2.0)
        world.say("inner")

    async def outer() -> None:
        await asyncio.wait_for(inner(), 10.0)

    process.start(outer())
    world.loop.later(1.0, process.kill)
    world.run(5.0)
    assert world.said == []
    world.loop.close()


def test_an_error_that_nobody_caught_is_told(world: World) -> None:
    def fail() -> None:
        raise RuntimeError("lost")

    world.loop.later(1.0, fail)
    world.run(2.0)
    assert [repr(error) for error in world.errors] == ["RuntimeError('lost')"]
    world.loop.close()


def test_a_loop_that_naps_for_nothing_still_lets_time_pass(world: World) -> None:
    async def hurry() -> None:
        for _ in range(1000):
            await asyncio.sleep(1e-13)

    SimulatedProcess(world.loop, "one").start(hurry())
    world.run(1.0)
    assert world.loop.time() >= 1.0
    world.loop.close()


def test_a_world_without_a_next_event_is_a_mistake(world: World) -> None:
    with pytest.raises(RuntimeError, match="nothing is left"):
        world.loop.run_forever()
    world.loop.close()
