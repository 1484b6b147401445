"""Streams whose head comes before the first token: the token is what counts."""

import asyncio

from tests.gateway.worlds import (
    STREAM_END,
    STREAM_HEAD,
    Behave,
    MockReplica,
    ReplicaSide,
    Request,
    answer_stream,
    chunk,
    event,
    gateway,
    play,
)

PROMPT_SECONDS = 0.1
STREAM = {"model": "chat", "messages": [], "stream": True}


def early_head(request: Request, side: ReplicaSide) -> None:
    """Send the head at once, and the first token after the prompt."""

    async def send() -> None:
        side.write(STREAM_HEAD)
        await asyncio.sleep(PROMPT_SECONDS)
        side.write(chunk(event("hello")))
        side.write(STREAM_END)

    side.start(send())


def dies_once() -> Behave:
    """Send the head of the first answer and die of the prompt; answer what follows."""
    deaths = iter([True])

    def behave(request: Request, side: ReplicaSide) -> None:
        async def die() -> None:
            side.write(STREAM_HEAD)
            await asyncio.sleep(PROMPT_SECONDS / 10)
            side.close()

        if next(deaths, False):
            side.start(die())
        else:
            answer_stream(3)(request, side)

    return behave


def test_the_time_to_first_token_has_the_time_of_the_prompt_in_it() -> None:
    async def scenario() -> None:
        async with gateway(MockReplica("a", early_head)) as world:
            answer = await world.post(STREAM)
            assert answer.is_whole
            assert sum(world.total.ttft.counts) == 1
            assert world.total.ttft.sum >= 0.9 * PROMPT_SECONDS

    play(scenario())


def test_a_replica_that_dies_before_its_first_token_is_replaced() -> None:
    async def scenario() -> None:
        behave = dies_once()
        async with gateway(MockReplica("a", behave), MockReplica("b", behave)) as world:
            answer = await world.post(STREAM)
            assert answer.is_whole
            assert len(answer.events) == 4
            assert world.metrics.retries == 1

    play(scenario())
