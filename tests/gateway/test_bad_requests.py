"""Requests that are refused: their framing, their bodies, their time."""

import asyncio
import gzip
import json
import random
from typing import Any

import pytest

from corral.gateway.continuation.stream_continuation import StreamContinuation
from corral.gateway.framing import client_connection
from tests.gateway.test_access import with_callers
from tests.gateway.worlds import (
    STREAM_HEAD,
    MockReplica,
    answer_raw,
    answer_stream,
    chunk,
    gateway,
    play,
    request_bytes,
)

BODY = b'{"model": "chat"}'
PLAIN = b"Host: x\r\n"


def head(lines: bytes, body: bytes = BODY, first: bytes = b"") -> bytes:
    first = first or b"POST /v1/chat/completions HTTP/1.1"
    return first + b"\r\n" + lines + b"\r\n" + body


LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
FRAMING = {
    "length and chunked": (head(PLAIN + LENGTH + CHUNKED), 400),
    "two lengths": (head(PLAIN + LENGTH + LENGTH), 400),
    "two different lengths": (head(PLAIN + LENGTH + b"content-length: 1\r\n"), 400),
    "list of lengths": (head(PLAIN + b"Content-Length: 17, 17\r\n"), 400),
    "plus": (head(PLAIN + b"Content-Length: +17\r\n"), 400),
    "minus": (head(PLAIN + b"Content-Length: -1\r\n"), 400),
    "hexadecimal": (head(PLAIN + b"Content-Length: 0x11\r\n"), 400),
    "underscore": (head(PLAIN + b"Content-Length: 1_7\r\n"), 400),
    "empty length": (head(PLAIN + b"Content-Length: \r\n"), 400),
    "huge length": (head(PLAIN + b"Content-Length: 99999999999999999999\r\n"), 400),
    "large length": (head(PLAIN + b"Content-Length: 99999999999\r\n"), 413),
    "gzip, chunked": (head(PLAIN + b"Transfer-Encoding: gzip, chunked\r\n"), 400),
    "two codings": (head(PLAIN + CHUNKED + CHUNKED), 400),
    "coding with tab": (head(PLAIN + b"Transfer-Encoding:\tchunked x\r\n"), 400),
    "space before colon": (head(PLAIN + b"Content-Length : 17\r\n"), 400),
    "folded": (head(PLAIN + b"X-A: 1\r\n 2\r\n" + LENGTH), 400),
    "folded with tab": (head(PLAIN + b"X-A: 1\r\n\t2\r\n" + LENGTH), 400),
    "bare LF": (head(PLAIN + b"X-A: 1\n" + LENGTH), 400),
    "bare LF only": (b"POST /tokenize HTTP/1.1\nHost: x\n\n", 400),
    "bare CR": (head(PLAIN + b"X-A: 1\rX-B: 2\r\n" + LENGTH), 400),
    "NUL": (head(PLAIN + b"X-A: 1\x002\r\n" + LENGTH), 400),
    "NUL in the path": (head(PLAIN, b"", b"GET /v1/mod\x00els HTTP/1.1"), 400),
    "no name": (head(PLAIN + b": 1\r\n" + LENGTH), 400),
    "no colon": (head(PLAIN + b"nonsense\r\n" + LENGTH), 400),
    "no host": (head(LENGTH), 400),
    "two hosts": (head(PLAIN + PLAIN + LENGTH), 400),
    "bad host": (head(b"Host: a b\r\n" + LENGTH), 400),
    "two keys": (head(PLAIN + b"Authorization: Bearer a\r\n" * 2 + LENGTH), 400),
    "different keys": (
        head(PLAIN + b"Authorization: Bearer a\r\nx-api-key: b\r\n" + LENGTH),
        400,
    ),
    "1,000 headers": (head(PLAIN + b"X-A: 1\r\n" * 1000 + LENGTH), 431),
    "10 MB key": (head(PLAIN + b"x-api-key: " + b"k" * 10_000_000 + b"\r\n"), 431),
    "100 kB URL": (head(PLAIN, b"", b"GET /" + b"u" * 100_000 + b" HTTP/1.1"), 414),
    "9 kB URL": (head(PLAIN, b"", b"GET /" + b"u" * 9_000 + b" HTTP/1.1"), 414),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /v1/models\r\n\r\n", 400),
    "version 1.2": (head(PLAIN, b"", b"GET /v1/models HTTP/1.2"), 400),
    "not HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "expectation": (head(PLAIN + b"Expect: 200-ok\r\n" + LENGTH), 400),
    "chunk of 2^63": (head(PLAIN + CHUNKED, b"8000000000000000\r\n"), 413),
    "chunk of 17 digits": (head(PLAIN + CHUNKED, b"00000000000000001\r\n"), 400),
    "chunk of -1": (head(PLAIN + CHUNKED, b"-1\r\n"), 400),
    "chunk of 0x1": (head(PLAIN + CHUNKED, b"0x1\r\na\r\n0\r\n\r\n"), 400),
    "chunk with LF": (head(PLAIN + CHUNKED, b"1\na\r\n0\r\n\r\n"), 400),
    "chunk too long": (head(PLAIN + CHUNKED, b"1\r\nab\r\n0\r\n\r\n"), 400),
    "extension of 1 MB": (head(PLAIN + CHUNKED, b"1;" + b"e" * 1_000_000), 400),
    "many extensions": (head(PLAIN + CHUNKED, (b"1;" + b"e" * 200 + b"\r\na\r\n") * 50), 400),
    "long trailers": (head(PLAIN + CHUNKED, b"0\r\n" + b"X-A: 1\r\n" * 2000), 400),
    "body above the limit": (
        head(PLAIN + CHUNKED, (b"186a0\r\n" + b"x" * 100_000 + b"\r\n") * 11),
        413,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMING)
def test_bad_framing_is_refused_and_the_connection_closed(name: str) -> None:
    async def scenario() -> None:
        data, status = FRAMING[name]
        replica = MockReplica("a")
        async with gateway(replica, body_bytes=1_000_000) as world:
            # what follows in the same connection is never taken for a request
            answer = await world.raw(data + b"\r\n" + request_bytes())
            assert answer.split()[1] in {str(status).encode(), b"505"}
            assert answer.count(b"\r\nContent-Length: ") == 1
            body = json.loads(answer.partition(b"\r\n\r\n")[2])
            assert body["error"].keys() == {"message", "type", "param", "code"}
        assert replica.requests == []

    play(scenario())


FORM_HEAD = head(
    PLAIN + b"Content-Type: multipart/form-data; boundary=x\r\n" + CHUNKED,
    b"",
    b"POST /v1/audio/transcriptions HTTP/1.1",
)
TOO_LARGE = {
    "a length": FRAMING["large length"][0],
    "chunks": FRAMING["body above the limit"][0],
    "a form": FORM_HEAD + chunk(b"f" * 1_000_001),
    "an HTTP service": head(
        PLAIN + CHUNKED, chunk(b"f" * 1_000_001), b"POST /services/chat/up HTTP/1.1"
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
@pytest.mark.parametrize("given", [b"", b"my-request"])
def test_a_body_that_is_too_large_gets_the_id_of_its_request(
    name: str, given: bytes
) -> None:
    async def scenario() -> None:
        lines = b"\r\nx-request-id: " + given if given else b""
        data = TOO_LARGE[name].replace(b" HTTP/1.1", b" HTTP/1.1" + lines, 1)
        async with gateway(MockReplica("a"), body_bytes=1_000_000) as world:
            answer = await world.raw(data)
        assert answer.split()[1] == b"413"
        assert b"\r\nx-request-id: " + given in answer

    play(scenario())


BODIES: dict[str, bytes] = {
    "not JSON": b"model=chat",
    "empty": b"",
    "gzip": b"\x1f\x8b\x08\x00",
    "a list": b"[]",
    "no model": b"{}",
    "model null": b'{"model": null}',
    "model a number": b'{"model": 7}',
    "model empty": b'{"model": ""}',
    "lone surrogate": b'{"model": "\\ud800"}',
    "lone surrogate elsewhere": b'{"model": "chat", "x": "\\ud800"}',
    "10,000 deep": b'{"model": "chat", "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "max_tokens -1": b'{"model": "chat", "max_tokens": -1}',
    "max_tokens 2^63": b'{"model": "chat", "max_tokens": 9223372036854775808}',
    "max_tokens 1e400": b'{"model": "chat", "max_tokens": 1e400}',
    "n 10^6": b'{"model": "chat", "n": 1000000}',
    "n 0": b'{"model": "chat", "n": 0}',
    "stream yes": b'{"model": "chat", "stream": "yes"}',
    "two texts": b'{"model": "chat"} {"model": "chat"}',
}


@pytest.mark.parametrize("name", BODIES)
def test_bad_bodies_are_refused_and_the_connection_goes_on(name: str) -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica) as world:
            client = await world.connect()
            answer = await client.post(BODIES[name])
            assert (answer.status, answer.code) == (400, "bad_request"), answer.body
            assert (await client.post()).status == 200
            await client.close()

    play(scenario())


def test_odd_bodies_pass_unchanged() -> None:
    async def scenario() -> None:
        bodies = [
            b'{"model": "x", "model": "chat"}',
            b'{"model": "chat", "temperature": 1e400}',
            b' { "model" : "chat" , "stream" : null } ',
            b'{"model": "chat", "url": "http://169.254.169.254/latest"}',
        ]
        replica = MockReplica("a")
        async with gateway(replica) as world:
            for body in bodies:
                assert (await world.post(body)).status == 200
        assert [request.body for request in replica.requests] == bodies

    play(scenario())


def test_an_unknown_model_is_not_found_and_names_no_other() -> None:
    async def scenario() -> None:
        async with gateway(MockReplica("a")) as world:
            answer = await world.post({"model": "gpt-\x00\n"})
            assert (answer.status, answer.code) == (404, "model_not_found")
            assert b"org/name" not in answer.body
            assert answer.json["error"]["param"] == "model"

    play(scenario())


def test_a_body_above_the_services_limit_is_refused() -> None:
    async def scenario() -> None:
        async with gateway(MockReplica("a"), body_bytes=100) as world:
            answer = await world.post({"model": "chat", "x": "y" * 200})
            assert (answer.status, answer.code) == (413, "body_too_large")

    play(scenario())


def test_an_upgrade_is_not_followed() -> None:
    async def scenario() -> None:
        async with gateway(MockReplica("a")) as world:
            client = await world.connect()
            extra = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
            assert (await client.post(extra=extra)).status == 200
            assert (await client.post()).status == 200
            await client.close()

    play(scenario())


@pytest.mark.parametrize("sent", [b"POST /v1", request_bytes()[:-3]])
def test_a_request_that_does_not_come_is_timed_out(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_connection, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(client_connection, "BODY_SILENCE_SECONDS", 0.2)

    async def scenario() -> None:
        async with gateway(MockReplica("a")) as world:
            client = await world.connect()
            start = asyncio.get_running_loop().time()
            client.writer.write(sent)
            assert (await client.answer()).code == "request_timeout"
            assert asyncio.get_running_loop().time() - start < 1.0
            await client.close()
            await world.until(lambda: not world.core.connections)

    play(scenario())


def test_a_head_byte_by_byte_is_read_and_too_slow_a_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_connection, "HEAD_SECONDS", 0.5)

    async def scenario() -> None:
        async with gateway(MockReplica("a")) as world:
            client = await world.connect()
            for index in range(len(request_bytes())):
                client.writer.write(request_bytes()[index : index + 1])
                await asyncio.sleep(0.0005)
            assert (await client.answer()).status == 200
            for byte in b"POST /v1/chat/completions HTTP/1.1":
                client.writer.write(bytes([byte]))
                await asyncio.sleep(0.03)
            assert (await client.answer()).status == 408
            await client.close()

    play(scenario())


def test_memory_for_bodies_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.gateway.gateway_core.BODIES_BYTES", 1_000_000)

    async def scenario() -> None:
        async with gateway(MockReplica("a")) as world:
            clients = [await world.connect() for _ in range(4)]
            data = request_bytes({"model": "chat", "x": "y" * 300_000})
            for client in clients:
                client.writer.write(data[:-10])
            await world.until(lambda: len(world.core.reading) == 4)
            refusal = await clients[3].answer()
            assert (refusal.status, refusal.code) == (503, "overloaded")
            for client in clients[:3]:
                client.writer.write(data[-10:])
                assert (await client.answer()).status == 200
            for client in clients:
                await client.close()

    play(scenario())


def test_a_stream_is_not_disturbed_by_bytes_after_its_request() -> None:
    async def scenario() -> None:
        async with gateway(MockReplica("a", answer_stream(10))) as world:
            client = await world.connect()
            body = {"model": "chat", "stream": True}
            client.writer.write(request_bytes(body) + b"GARBAGE\n\n" * 30_000)
            assert (await client.answer()).events[-1] == "[DONE]"
            assert (await client.answer()).status in (400, 414)
            await client.close()

    play(scenario())


USAGES = [
    ({"prompt_tokens": 5, "cached_tokens": 9, "completion_tokens": 2}, (5, 5, 2)),
    ({"prompt_tokens": -5, "completion_tokens": 2}, (0, 0, 2)),
    ({"prompt_tokens": "5", "completion_tokens": 2.5}, (0, 0, 2)),
    ({"prompt_tokens": 10**30, "completion_tokens": 2}, (10**12 - 1, 0, 2)),
    ({"prompt_tokens": [5], "completion_tokens": None}, None),
    ({}, None),
    (None, None),
]


@pytest.mark.parametrize(("usage", "counts"), USAGES)
def test_usage_that_cannot_be_is_cut_to_what_is_possible(
    usage: object, counts: tuple[int, int, int] | None
) -> None:
    async def scenario() -> None:
        text = json.dumps({"choices": [], "usage": usage}).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(text)
        async with gateway(MockReplica("a", answer_raw(head + text))) as world:
            answer = await world.post()
            assert (answer.status, answer.body) == (200, text)
            sums = world.total.tokens[""]
            seen = (sums.prompt, sums.cached, sums.output)
            assert sums.requests == 1
            if counts is None:
                assert seen == (0, 0, 0)
            else:
                assert (seen[1], seen[2]) == (counts[1], counts[2])
                assert 0 <= seen[1] <= seen[0] <= counts[0]

    play(scenario())


def test_an_error_inside_an_answer_of_status_200_passes_unchanged() -> None:
    async def scenario() -> None:
        text = b'{"error": {"message": "out of memory"}}'
        whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text)
        replica = MockReplica("a", answer_raw(whole))
        async with gateway(replica) as world:
            assert (await world.post()).body == text
            event = b"data: " + text + b"\n\n"
            stream = STREAM_HEAD + chunk(event) + b"0\r\n\r\n"
            replica.behave = answer_raw(stream)
            answer = await world.post({"model": "chat", "stream": True})
            assert answer.body.startswith(event)
            assert "[DONE]" not in answer.events

    play(scenario())


def test_an_encoded_body_and_a_key_of_another_cluster_are_refused() -> None:
    async def scenario() -> None:
        async with gateway(MockReplica("a"), routes=with_callers) as world:
            client = await world.connect()
            answer = await client.post(extra="Authorization: Bearer sk-else\r\n")
            assert (answer.status, answer.code) == (401, "invalid_api_key")
            bomb = gzip.compress(b'{"model": "chat"' + b" " * 10_000_000 + b"}")
            extra = "Authorization: Bearer sk-bob\r\nContent-Encoding: gzip\r\n"
            answer = await client.post(bomb, extra=extra)
            assert (answer.status, answer.code) == (400, "bad_request")
            await client.close()

    play(scenario())


ODD: list[Any] = [
    None,
    5,
    -1,
    2**63,
    "x",
    [],
    {},
    [1],
    {"a": 1},
    [None],
    1.5,
    True,
    [[1]],
    [{}],
]
OPENAI_CHUNK = {
    "id": "a",
    "choices": [
        {
            "index": 0,
            "delta": {"role": "assistant", "content": "h"},
            "text": "t",
            "token_ids": [1, 2],
            "prompt_token_ids": [3],
            "finish_reason": None,
        }
    ],
    "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}},
}
LLAMA_CHUNK = {
    "content": "x",
    "tokens": [1],
    "tokens_predicted": 1,
    "tokens_evaluated": 2,
    "stop": False,
    "timings": {"cache_n": 1},
}


def damaged(value: Any, chance: random.Random) -> Any:
    """Return a copy with one or two values of other types."""
    copy = json.loads(json.dumps(value))
    spots: list[tuple[Any, Any]] = []

    def walk(part: Any) -> None:
        keys = part if isinstance(part, dict) else range(len(part))
        for key in keys:
            spots.append((part, key))
            if isinstance(part[key], dict | list):
                walk(part[key])

    walk(copy)
    for part, key in chance.sample(spots, chance.randint(1, 2)):
        part[key] = chance.choice(ODD)
    return copy


@pytest.mark.parametrize("kind", ["text", "vllm", "llama.cpp"])
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/completions"])
def test_events_of_any_shape_do_not_disturb_a_continuation(
    kind: str, path: bytes
) -> None:
    chance = random.Random(29)
    fields: dict[str, object] = {"model": "m", "stream": True, "temperature": 0}
    fields["stream_options"] = {"include_usage": True}
    if path == b"/v1/completions":
        fields["prompt"] = "x"
    else:
        fields["messages"] = [{"role": "user", "content": "x"}]
    body = json.dumps(fields).encode()
    passed = 0
    for _ in range(1000):
        continuation = StreamContinuation.begin(kind, path, body, "id")
        assert continuation is not None
        if continuation.is_preparing:
            assert continuation.take_prompt(b'{"prompt": "x"}')
        for _ in range(3):
            event = damaged(
                LLAMA_CHUNK if kind == "llama.cpp" else OPENAI_CHUNK, chance
            )
            if not continuation.is_lost:
                passed += bool(continuation.feed(data_event(event)))
            if chance.random() < 0.3:
                continuation.move()
        assert continuation.closing_events(5).endswith(b"data: [DONE]\n\n")
    assert passed > 150


def data_event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
