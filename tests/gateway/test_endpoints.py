"""Endpoints of the APIs that the gateway relays, each before mock engines."""

import asyncio
import json
from typing import Any

import pytest

from corral.gateway.requests.endpoints import FORMS, RELAYED
from corral.gateway.routing import response_places
from corral.gateway.routing.response_places import ResponsePlaces
from tests.gateway.test_access import with_callers
from tests.gateway.worlds import (
    STREAM_HEAD,
    MockReplica,
    ReplicaSide,
    Request,
    chunk,
    gateway,
    json_bytes,
    play,
    request_bytes,
)

BODIES: dict[bytes, dict[str, Any]] = {
    b"/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    b"/v1/completions": {"prompt": "x"},
    b"/v1/responses": {"input": "x"},
    b"/v1/embeddings": {"input": ["x", "y"]},
    b"/v1/rerank": {"query": "x", "documents": ["a", "b"]},
    b"/v1/score": {"text_1": "x", "text_2": ["a"]},
    b"/v1/messages": {"max_tokens": 5, "messages": [{"role": "user", "content": "x"}]},
    b"/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "x"}]},
    b"/v1/audio/speech": {"input": "x", "voice": "v"},
    b"/v1/images/generations": {"prompt": "x", "n": 2},
    b"/tokenize": {"prompt": "x"},
    b"/detokenize": {"tokens": [1, 2]},
}


def test_every_endpoint_with_a_json_body_is_among_the_tested() -> None:
    assert set(BODIES) == RELAYED - FORMS


@pytest.mark.parametrize("path", sorted(BODIES))
def test_an_endpoint_is_relayed_with_its_body(path: bytes) -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica, routes=with_callers) as world:
            text = path.decode()
            body = {"model": "chat", **BODIES[path]}
            client = await world.connect()
            assert (await client.post(body, text)).status == 401
            for key in (
                "Authorization: Bearer sk-alice\r\n",
                "x-api-key: sk-alice\r\n",
            ):
                assert (await client.post(body, text, key)).status == 200
            assert (await client.get(text, key)).status == 405
            answer = await client.post({**body, "model": "none"}, text, key)
            assert (answer.status, answer.code) == (404, "model_not_found")
            await client.close()
        assert replica.requests[0].json == body
        assert replica.requests[0].head.startswith(b"POST %b HTTP/1.1\r\n" % path)
        assert len(replica.requests) == 2

    play(scenario())


@pytest.mark.parametrize("kind", [b"audio/mpeg", b"application/octet-stream"])
def test_speech_is_passed_on_as_it_comes(kind: bytes) -> None:
    async def scenario() -> None:
        sides: list[ReplicaSide] = []

        def behave(request: Request, side: ReplicaSide) -> None:
            side.write(STREAM_HEAD.replace(b"text/event-stream; charset=utf-8", kind))
            side.write(chunk(b"ID3\x00\xff"))
            sides.append(side)

        async with gateway(MockReplica("a", behave)) as world:
            client = await world.connect()
            body = {"model": "chat", "input": "x", "voice": "v"}
            client.writer.write(request_bytes(body, "/v1/audio/speech"))
            # the first sound is there before the answer has ended
            async with asyncio.timeout(5):
                await client.reader.readuntil(chunk(b"ID3\x00\xff"))
            sides[0].write(chunk(b"\xff" * 200_000) + b"0\r\n\r\n")
            async with asyncio.timeout(5):
                rest = await client._chunks()
            assert rest == (b"\xff" * 200_000, True)
            await client.close()

    play(scenario())


def message_events() -> bytes:
    events: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": {"id": "m", "usage": {"input_tokens": 9}}}),
        ("content_block_delta", {"delta": {"type": "text_delta", "text": "hi"}}),
        ("message_delta", {"usage": {"input_tokens": 9, "output_tokens": 4}}),
        ("message_stop", {}),
    ]
    return b"".join(
        f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()
        for name, data in events
    )


def test_a_stream_of_messages_passes_and_its_tokens_count() -> None:
    async def scenario() -> None:
        def behave(request: Request, side: ReplicaSide) -> None:
            side.write(STREAM_HEAD + chunk(message_events()) + b"0\r\n\r\n")

        async with gateway(MockReplica("a", behave), routes=with_callers) as world:
            body = {"model": "chat", **BODIES[b"/v1/messages"], "stream": True}
            client = await world.connect()
            answer = await client.post(body, "/v1/messages", "x-api-key: sk-bob\r\n")
            assert answer.body == message_events()
            sums = world.total.tokens["bob"]
            assert (sums.prompt, sums.output) == (9, 4)
            await client.close()

    play(scenario())


class ResponsesEngine:
    """Engine that keeps its responses, and knows no others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kept: list[str] = []

    def behave(self, request: Request, side: ReplicaSide) -> None:
        previous = request.json.get("previous_response_id")
        if previous is not None and previous not in self.kept:
            side.write(json_bytes(status="404 Not Found"))
            return
        response = f"resp_{self.name}{len(self.kept)}"
        self.kept.append(response)
        if not request.json.get("stream"):
            text = json.dumps({"id": response, "object": "response", "output": []})
            head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(text)}\r\n\r\n"
            side.write((head + text).encode())
            return
        created = {"type": "response.created", "response": {"id": response}}
        text = f"event: response.created\ndata: {json.dumps(created)}\n\n"
        side.write(STREAM_HEAD + chunk(text.encode()) + b"0\r\n\r\n")


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_response_is_continued_where_it_was_made(
    is_stream: bool, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_known:  # another process has passed the first answer on
        monkeypatch.setattr(ResponsePlaces, "find", lambda *_: None)

    async def scenario() -> None:
        engines = [ResponsesEngine(name) for name in "abc"]
        replicas = [MockReplica(one.name, one.behave) for one in engines]
        async with gateway(*replicas) as world:
            body = {"model": "chat", "input": "x", "stream": is_stream}
            client = await world.connect()
            for engine in engines:
                engine.kept = [f"resp_{engine.name}"]
                text = f'{{"id": "resp_{engine.name}"}}'.encode()
                world.core.services["chat"].responses.note(text, engine.name, "")
            for engine in engines:
                for _ in range(3):
                    last = engine.kept[-1]
                    following = {**body, "previous_response_id": last}
                    answer = await client.post(following, "/v1/responses")
                    assert answer.status == 200
                    assert f"resp_{engine.name}" in answer.body.decode()
            unknown = {**body, "previous_response_id": "resp_none"}
            assert (await client.post(unknown, "/v1/responses")).status == 404
            if is_known:
                sent = sum(len(one.requests) for one in replicas)
                assert sent == 9 + len(engines)
                assert world.metrics.retries == 0
            await client.close()

    play(scenario())


def test_places_of_responses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_places, "REMEMBERED", 3)
    places = ResponsePlaces()
    for number in range(5):
        assert places.note(b'{"id": "resp_%d"}' % number, "a", "ann")
    assert [places.find(f"resp_{number}", "ann") for number in range(5)] == [
        None, None, "a", "a", "a",
    ]  # fmt: skip
    assert not places.note(b'{"id": "chatcmpl-1"}', "a", "ann")


def test_no_caller_takes_over_the_response_of_another_by_its_id() -> None:
    places = ResponsePlaces()
    for owner, replica in (("ann", "a"), ("bob", "b")):
        assert places.note(b'{"id": "resp_1"}', replica, owner)
    assert places.find("resp_1", "ann") == "a"
    assert places.find("resp_1", "bob") is None
    assert places.is_of_another("resp_1", "bob")
    assert not places.is_of_another("resp_1", "ann")
