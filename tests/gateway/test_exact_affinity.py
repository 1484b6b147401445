"""Exact affinity: the gateway follows the cache events of engines over real ZeroMQ, and
sends prompts where their blocks are."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from corral.gateway.replicas import exact_affinity
from corral.gateway.replicas.kv_event_text import KvEventsInvalid, decode_batch
from corral.gateway.replicas.kv_subscription import KvEndpoints, KvSubscription
from corral.route.block_index import KvCacheView, token_block_hashes
from corral.route.exact_index import ExactPromptIndex
from corral.route.kv_events import BlocksCleared, BlocksRemoved, BlocksStored
from corral.wire.gateway_routes import KvEventsEntry, RoutesFile
from tests.gateway.kv_publisher import (
    CLEARED,
    HOST,
    Publisher,
    publisher,
    removed,
    stored,
)
from tests.gateway.worlds import (
    MockReplica,
    ReplicaSide,
    Request,
    World,
    gateway,
    json_bytes,
    play,
    routes_of,
)

SIZE = 16
TOKENS = list(range(4 * SIZE))
HASHES = token_block_hashes(TOKENS, SIZE)
# a batch of vLLM 0.32, as it came from its socket
VLLM_BATCH = bytes.fromhex(
    "93cb41dac2a8df8b a4fe 91 8b"
    "a474797065 ab426c6f636b53746f726564"
    "ac626c6f636b5f686173686573 91 cfdea0bb1b9a3a7b8e"
    "b1706172656e745f626c6f636b5f68617368 cf85b6c6fd3b9d8e5d"
    "a9746f6b656e5f696473 92 48 52"
    "aa626c6f636b5f73697a65 02"
    "a76c6f72615f6964 c0"
    "a66d656469756d a3475055"
    "a96c6f72615f6e616d65 c0"
    "aa65787472615f6b657973 91 c0"
    "a967726f75705f696478 00"
    "b26b765f63616368655f737065635f6b696e64 ae66756c6c5f617474656e74696f6e"
    "00".replace(" ", "")
)


def test_a_message_of_vllm_is_read() -> None:
    batch = decode_batch(4, VLLM_BATCH)
    assert (batch.number, round(batch.at, 3)) == (4, 1795859326.182)
    assert batch.events == [
        BlocksStored(
            hashes=[0xDEA0BB1B9A3A7B8E],
            parent=0x85B6C6FD3B9D8E5D,
            tokens=[72, 82],
            block_size=2,
            keys=[None],
        )
    ]


def test_a_message_of_arrays_as_of_sglang_is_read() -> None:
    message = msgspec.msgpack.encode(
        [
            7.5,
            [
                ["BlockStored", [-5], None, [1, 2], 2, None, "GPU"],
                ["BlockStored", [6], -5, [3, 4], 2, 3],
                ["BlockRemoved", [-5]],
                ["AllBlocksCleared"],
                ["ofALaterVersion", 1],
            ],
        ]
    )
    assert decode_batch(0, message).events == [
        BlocksStored([-5], None, [1, 2], 2, []),
        BlocksStored([6], -5, [3, 4], 2, ["3"]),
        BlocksRemoved([-5]),
        BlocksCleared(),
    ]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"ts": 1}),
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode([1.0, [5]]),
        msgspec.msgpack.encode([1.0, [{"type": "BlockStored"}]]),
        msgspec.msgpack.encode([1.0, [["BlockStored", [1], None, ["a"], 16]]]),
        msgspec.msgpack.encode([1.0, [["BlockRemoved", 5]]]),
    ],
)
def test_a_message_that_is_not_one_of_events_is_refused(message: bytes) -> None:
    with pytest.raises(KvEventsInvalid):
        decode_batch(0, message)


@asynccontextmanager
async def following(
    engine: Publisher, *, replays: bool = True
) -> AsyncIterator[tuple[KvCacheView, Callable[[Callable[[], bool]], Any]]]:
    """Follow a publisher; give the view, and what waits for a condition."""
    view = KvCacheView()
    replay = f"tcp://{HOST}:{engine.replay_port}" if replays else None
    endpoints = KvEndpoints(f"tcp://{HOST}:{engine.port}", replay)
    subscription = KvSubscription("chat_1", endpoints, view)
    subscription.start()

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    try:
        yield view, until
    finally:
        subscription.stop()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("has_topic", [True, False])
def test_what_was_stored_before_the_subscription_is_replayed(has_topic: bool) -> None:
    async def scenario() -> None:
        async with publisher(has_topic=has_topic) as engine:
            await engine.publish(stored([1, 2], None, TOKENS[:32], SIZE))
            await engine.publish(removed([2]))
            async with following(engine) as (view, until):
                await until(lambda: view.is_live)
                assert view.index.count_cached(HASHES) == 1
                assert view.index.is_complete

    play(scenario())


def test_a_lost_batch_is_replayed() -> None:
    async def scenario() -> None:
        async with publisher() as engine, following(engine) as (view, until):
            await until(lambda: view.is_live)
            await engine.publish(stored([1], None, TOKENS[:16], SIZE), is_lost=True)
            # until the subscription has reached the publisher, batches are lost, too
            await engine.publish(stored([2], 1, TOKENS[16:32], SIZE))
            while view.index.count_cached(HASHES) != 2:
                await engine.publish()
                await asyncio.sleep(0.01)
            assert engine.replays > 1

    play(scenario())


def test_an_engine_that_was_restarted_has_nothing_of_before() -> None:
    async def scenario() -> None:
        async with publisher() as engine, following(engine) as (view, until):
            for number in range(5):
                tokens = [number] * SIZE
                await engine.publish(stored([number], None, tokens, SIZE))
            await engine.publish(stored([10], None, TOKENS[:16], SIZE))
            await until(lambda: view.index.count_cached(HASHES) == 1)
            await engine.restart()
            await until(lambda: view.is_live and len(view.index) == 0)
            await engine.publish(stored([77], None, TOKENS[:16], SIZE))
            await until(lambda: view.index.count_cached(HASHES) == 1)
            assert len(view.index) == 1

    play(scenario())


def test_while_the_engine_is_away_the_view_is_not_live() -> None:
    async def scenario() -> None:
        async with publisher() as engine, following(engine) as (view, until):
            await until(lambda: view.is_live)
            engine.stop()
            await until(lambda: not view.is_live)
            await engine.start()
            await until(lambda: view.is_live)

    play(scenario())


def test_an_engine_without_replay_is_followed_from_now_on() -> None:
    async def scenario() -> None:
        async with publisher() as engine:
            await engine.publish(stored([1], None, TOKENS[:16], SIZE))
            async with following(engine, replays=False) as (view, until):
                while not view.is_live:
                    await engine.publish(stored([9], None, [7] * SIZE, SIZE))
                    await asyncio.sleep(0.01)
                assert view.index.count_cached(HASHES) == 0
                assert not view.index.is_complete
                await engine.publish(CLEARED)
                await until(lambda: view.index.is_complete)

    play(scenario())


def test_messages_of_something_else_end_the_subscription_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with publisher() as engine, following(engine) as (view, until):
            await until(lambda: view.is_live)
            while view.is_live:
                await engine.publish({"type": "BlockStored", "block_hashes": "no"})
                await asyncio.sleep(0.01)
            await until(lambda: "chat_1 are not used" in caplog.text)

    with caplog.at_level(logging.WARNING):
        play(scenario())


LONG = "w" * 2048


def tokens_of(body: Any) -> list[int]:
    """Tokens as an engine would cut them: the messages' text, four letters each."""
    text = "".join(message["content"] for message in body["messages"])
    return [ord(letter) for letter in text[::4]]


def answer_like_an_engine(request: Request, side: ReplicaSide) -> None:
    if request.head.startswith(b"POST /tokenize "):
        tokens = tokens_of(request.json)
        body = json.dumps({"count": len(tokens), "tokens": tokens}).encode()
        side.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
    else:
        side.write(json_bytes())


def routes_with(
    ports: Sequence[Mapping[str, int]], replicas: list[MockReplica]
) -> RoutesFile:
    """Return the routes of replicas that publish the events of their caches."""
    routes = routes_of(replicas)
    (service,) = routes.services
    entries = tuple(
        msgspec.structs.replace(entry, kv_events=KvEventsEntry(**replica_ports))
        for entry, replica_ports in zip(service.replicas, ports, strict=True)
    )
    service = msgspec.structs.replace(service, replicas=entries)
    return msgspec.structs.replace(routes, services=(service,))


def chats(replica: MockReplica) -> int:
    return sum(b"/chat/" in request.head for request in replica.requests)


def exact_index(world: World, name: str) -> ExactPromptIndex:
    index = world.core.services["chat"].pools[name].state.index
    assert isinstance(index, ExactPromptIndex)
    return index


def test_a_prompt_goes_where_its_blocks_are_also_after_they_have_moved() -> None:
    async def scenario() -> None:
        replicas = [MockReplica(f"chat_{at}", answer_like_an_engine) for at in (1, 2)]
        local = {"host": "127.0.0.1"}
        async with publisher(**local) as first, publisher(**local) as second:
            engines = [first, second]

            def routes(started: list[MockReplica]) -> RoutesFile:
                return routes_with([engine.entry for engine in engines], started)

            async with gateway(*replicas, routes=routes) as world:
                indexes = [exact_index(world, one.name) for one in replicas]
                await world.until(lambda: all(one.view.is_live for one in indexes))
                body = {
                    "model": "chat",
                    "messages": [{"role": "user", "content": LONG}],
                }
                tokens = tokens_of(body)
                blocks = list(range(len(tokens) // SIZE))
                for engine in engines:
                    await engine.publish(stored([999], None, [1] * SIZE, SIZE))
                await world.post(body)  # its tokens are requested
                await world.until(
                    lambda: sum(len(one.requests) for one in replicas) == 2
                )
                await asyncio.sleep(0.01)

                async def goes_to(replica: MockReplica) -> None:
                    before = chats(replica)
                    for _ in range(6):
                        await world.post(body)
                    assert chats(replica) == before + 6

                await second.publish(stored(blocks, None, tokens, SIZE))
                await world.until(lambda: len(indexes[1].view.index) > 1)
                await goes_to(replicas[1])
                await second.publish(removed(blocks))
                await first.publish(stored(blocks, None, tokens, SIZE))
                await world.until(lambda: len(indexes[0].view.index) > 1)
                await world.until(lambda: len(indexes[1].view.index) == 1)
                await goes_to(replicas[0])
                cuts = [
                    request
                    for replica in replicas
                    for request in replica.requests
                    if b"/tokenize" in request.head
                ]
                assert len(cuts) == 1, "the tokens of a prompt are requested once"
                assert cuts[0].lines[b"authorization"] == b"Bearer engine-key"
                remaining = routes_with([second.entry], replicas[1:])
                world.core.update_routes(msgspec.structs.replace(remaining, version=2))
                assert [one.view.is_live for one in indexes] == [False, True]

    play(scenario())


def test_a_prompt_is_cut_once_while_its_tokens_are_awaited_and_no_request_waits() -> (
    None
):
    def answer_chats_only(request: Request, side: ReplicaSide) -> None:
        if b"/chat/" in request.head:
            side.write(json_bytes())

    async def scenario() -> None:
        replica = MockReplica("chat_1", answer_chats_only)
        async with publisher(host="127.0.0.1") as engine:

            def routes(started: list[MockReplica]) -> RoutesFile:
                return routes_with([engine.entry], started)

            async with gateway(replica, routes=routes) as world:
                await world.until(lambda: exact_index(world, "chat_1").view.is_live)
                message = {"role": "user", "content": LONG}
                for _ in range(4):
                    body = {"model": "chat", "messages": [message]}
                    assert (await world.post(body)).status == 200
                cuts = [one for one in replica.requests if b"/tokenize" in one.head]
                assert len(cuts) == 1

    play(scenario())


def test_without_the_package_the_gateway_chooses_by_the_prompts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exact_affinity, "find_spec", lambda name: None)

    async def scenario() -> None:
        replica = MockReplica("chat_1")

        def routes(started: list[MockReplica]) -> RoutesFile:
            return routes_with([{"port": 1}], started)

        async with gateway(replica, routes=routes) as world:
            assert (await world.post()).status == 200

    with caplog.at_level(logging.WARNING):
        play(scenario())
    assert "pip install 'corral[kv]'" in caplog.text
