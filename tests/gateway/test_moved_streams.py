"""Streams whose replica dies in their middle, on real sockets."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from corral.gateway.requests import relay
from tests.gateway.engines import CHAT, TEXT, Engine, LlamaEngine, behave_as
from tests.gateway.test_stream_continuation import body_of, check_same, engine_of, read
from tests.gateway.worlds import (
    STREAM_HEAD,
    Answer,
    MockReplica,
    ReplicaSide,
    Request,
    World,
    answer_json,
    answer_nothing,
    answer_raw,
    chunk,
    gateway,
    json_bytes,
    play,
    request_bytes,
)

KINDS = ("text", "vllm", "llama.cpp")


def first_cut_at(cut: int) -> Callable[[Request], int | None]:
    """Cut the first stream of all replicas at a byte."""
    streams = 0

    def cut_at(request: Request) -> int | None:
        nonlocal streams
        streams += 1
        return cut if streams == 1 else None

    return cut_at


async def stream(world: World, path: bytes, **fields: object) -> Answer:
    return await world.post({**body_of(path, **fields), "model": "chat"}, path.decode())


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_stream_goes_on_at_another_replica(kind: str, path: bytes) -> None:
    async def scenario() -> None:
        expected = None
        for cut in (None, 400, 777, 1234, 1500):
            engine = engine_of(kind)
            behave = behave_as(engine, first_cut_at(cut) if cut else lambda _: None)
            replicas = [MockReplica(name, behave) for name in "ab"]
            async with gateway(*replicas, continues=kind) as world:
                answer = await stream(world, path)
                assert answer.is_whole
                if expected is None:
                    expected = read(answer.body)
                check_same(answer.body, expected)
                assert world.metrics.streams_continued == (cut is not None)
                assert world.metrics.streams_lost == 0
                assert world.total.token_sums.output == 16
                assert world.total.requests == {200: 1}
                if cut is not None:
                    assert all(replica.requests for replica in replicas)

    play(scenario())


def test_many_streams_survive_a_killed_replica() -> None:
    async def scenario() -> None:
        engine = Engine(is_exact=False)
        begun: dict[str, int] = {"a": 0, "b": 0, "c": 0}

        def behave(request: Request, side: ReplicaSide) -> None:
            async def send() -> None:
                text = engine.stream(request.head.split(b" ")[1], request.json)
                side.write(STREAM_HEAD)
                for number, event in enumerate(text.split(b"\n\n")[:-1]):
                    side.write(chunk(event + b"\n\n"))
                    begun[side.replica.name] += number == 3
                    await asyncio.sleep(0.03)
                side.write(b"0\r\n\r\n")

            side.start(send())

        replicas = [MockReplica(name, behave) for name in "abc"]
        async with gateway(*replicas, continues="vllm") as world:
            expected = read((await stream(world, CHAT)).body)
            streams = [asyncio.ensure_future(stream(world, CHAT)) for _ in range(60)]
            await world.until(lambda: begun["a"] >= 12)
            replicas[0].kill()
            for answer in await asyncio.gather(*streams):
                check_same(answer.body, expected)
            assert world.metrics.streams_continued >= 10

    play(scenario())


def test_without_another_replica_the_stream_ends_with_the_count_of_its_tokens() -> None:
    async def scenario() -> None:
        text = Engine().stream(CHAT, body_of(CHAT))[:600]

        def behave(request: Request, side: ReplicaSide) -> None:
            async def die() -> None:
                side.write(STREAM_HEAD + chunk(text))
                await asyncio.sleep(0.05)
                side.replica.kill()

            side.start(die())

        replica = MockReplica("a", behave)
        async with gateway(replica, continues="text", deadline_seconds=0.3) as world:
            answer = await stream(world, CHAT)
            passed = len(read(answer.body.partition(b'data: {"error"')[0]).text)
            last = answer.events[-1]
            assert '"code":"replica_lost"' in last
            assert f'"tokens":{passed}' in last
            assert b"[DONE]" not in answer.body
            assert world.metrics.streams_lost == 1

    play(scenario())


@pytest.mark.parametrize(
    "second",
    [
        answer_raw(json_bytes(status="400 Bad Request")),
        answer_raw(json_bytes()),
        answer_raw(json_bytes(status="500 Oops")),
        answer_raw(STREAM_HEAD + chunk(b'data: {"error": {}}\n\n') + b"0\r\n\r\n"),
        answer_raw(STREAM_HEAD + chunk(b'data: {"error": {}}\n\n')),
    ],
)
def test_a_replica_that_cannot_go_on_is_followed_by_a_third(second: Any) -> None:
    async def scenario() -> None:
        engine = Engine()
        cut = behave_as(engine, lambda _: 600)
        whole = behave_as(engine, lambda _: None)
        calls = 0

        def behave(request: Request, side: ReplicaSide) -> None:
            nonlocal calls
            calls += 1
            (cut, second, whole)[calls - 1](request, side)

        replicas = [MockReplica(name, behave) for name in "abc"]
        async with gateway(*replicas, continues="text") as world:
            start = world.core.now()
            answer = await stream(world, CHAT)
            check_same(answer.body, read(Engine().stream(CHAT, body_of(CHAT))))
            assert calls == 3
            assert world.core.now() - start < 2.0

    play(scenario())


def test_a_stream_that_stops_moves_long_before_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "LEAST_SILENCE_SECONDS", 0.1)

    async def scenario() -> None:
        engine = Engine()
        whole = behave_as(engine, lambda _: None)
        begun = engine.stream(CHAT, body_of(CHAT))[:700]
        hung: list[str] = []

        def behave(request: Request, side: ReplicaSide) -> None:
            if hung:
                whole(request, side)
                return
            hung.append(side.replica.name)
            side.write(STREAM_HEAD + chunk(begun))

        replicas = [MockReplica(name, behave) for name in "ab"]
        async with gateway(*replicas, continues="text") as world:
            for state in world.core.services["chat"].states:
                for _ in range(100):
                    state.rates.observe_itl(1, 0.001)
            answer = await stream(world, CHAT)
            check_same(answer.body, read(engine.stream(CHAT, body_of(CHAT))))
            first = next(one for one in replicas if one.name == hung[0])
            await world.until(lambda: not first.sides)

    play(scenario())


def test_a_stream_does_not_go_back_to_the_replica_that_has_lost_it() -> None:
    async def scenario() -> None:
        names: list[str] = []
        cut = behave_as(Engine(), lambda _: 600)
        whole = behave_as(Engine(), lambda _: None)

        def behave(request: Request, side: ReplicaSide) -> None:
            names.append(side.replica.name)
            (cut if len(names) % 2 else whole)(request, side)

        replicas = [MockReplica(name, behave) for name in "abc"]
        async with gateway(*replicas, continues="text") as world:
            for state in world.core.services["chat"].states:
                state.running += 5 * (state.name != "a")
            for _ in range(5):
                assert read((await stream(world, CHAT)).body).dones == 1
            for state in world.core.services["chat"].states:
                state.running -= 5 * (state.name != "a")
        pairs = list(zip(names[::2], names[1::2], strict=True))
        assert "a" in names[::2]
        assert all(first != second for first, second in pairs)

    play(scenario())


def test_a_complete_answer_that_lacks_its_end_gets_it() -> None:
    async def scenario() -> None:
        whole = Engine().stream(CHAT, body_of(CHAT))
        cut = whole.index(b'"length"') + 20
        behave = behave_as(Engine(), lambda _: whole.index(b"\n\n", cut) + 2)
        async with gateway(MockReplica("a", behave), continues="text") as world:
            check_same((await stream(world, CHAT)).body, read(whole))
            assert len(world.replicas[0].requests) == 1

    play(scenario())


def test_a_llama_cpp_without_templates_is_relayed_as_it_is() -> None:
    async def scenario() -> None:
        whole = Engine().stream(CHAT, body_of(CHAT))

        def behave(request: Request, side: ReplicaSide) -> None:
            if b"/apply-template" in request.head:
                side.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}")
                return
            side.write(STREAM_HEAD + chunk(whole) + b"0\r\n\r\n")

        async with gateway(MockReplica("a", behave), continues="llama.cpp") as world:
            assert (await stream(world, CHAT)).body == whole

    play(scenario())


def test_a_client_that_leaves_ends_a_moved_stream() -> None:
    async def scenario() -> None:
        cut = behave_as(Engine(), lambda _: 600)
        calls: list[str] = []

        def behave(request: Request, side: ReplicaSide) -> None:
            calls.append(side.replica.name)
            (answer_nothing if len(calls) > 1 else cut)(request, side)

        replicas = [MockReplica(name, behave) for name in "ab"]
        async with gateway(*replicas, continues="text") as world:
            client = await world.connect()
            body = {**body_of(CHAT), "model": "chat"}
            client.writer.write(request_bytes(body))
            await world.until(lambda: len(calls) == 2)
            await client.close()
            await world.until(lambda: not world.core.active)
            await world.until(lambda: not any(one.sides for one in replicas))
            assert world.total.token_sums.output > 0

    play(scenario())


def test_answers_that_are_no_streams_are_relayed_as_they_are() -> None:
    async def scenario() -> None:
        replica = MockReplica("a", answer_json)
        async with gateway(replica, continues="llama.cpp") as world:
            body = {"model": "chat", "messages": [{"role": "user", "content": "x"}]}
            assert (await world.post(body)).status == 200
            assert replica.requests[0].json == body

    play(scenario())


def test_llama_cpp_gets_the_prompt_of_its_own_template() -> None:
    async def scenario() -> None:
        engine = LlamaEngine()
        behave = behave_as(engine, lambda _: None)
        async with gateway(MockReplica("a", behave), continues="llama.cpp") as world:
            answer = await stream(world, CHAT)
            assert read(answer.body).dones == 1
        assert [path for path, _ in engine.requests] == [
            b"/apply-template",
            b"/completion",
        ]
        assert engine.requests[1][1]["prompt"] == "<user>ab \u00e9<assistant>"

    play(scenario())
