"""Requests that are refused: their framing, their bodies, their time."""

import asyncio
import json

import pytest

from corral.gateway import client_connection
from tests.gateway.worlds import (
    MockReplica,
    answer_stream,
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
