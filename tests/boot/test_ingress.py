"""The server within its limits: what it refuses before a token was seen, and what still
gets in."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from corral.boot.clock import SystemClock
from corral.boot.http_server import HSTS, HttpServer, uvicorn_config
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.tls import Tls, tls_of
from corral.ingress.addresses import TrustedProxies
from corral.ingress.connections import (
    ClosedReason,
    ConnectionLimits,
    ConnectionTable,
    connection_of,
)
from tests.boot.test_serving import serving
from tests.patience import PATIENCE_SECONDS

GET = b"GET /healthz HTTP/1.1\r\nHost: a\r\n"
SHORT = 0.2


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers who asks; a right token proves the connection."""
    connection = connection_of(scope)
    assert connection is not None
    if (b"authorization", b"right") in scope["headers"]:
        connection.prove("right")
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    body = json.dumps([scope["client"][0], scope["scheme"]]).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Dialled:
    """One client's connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        """(status, body). Raises: EOFError, OSError where it was closed without one."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        return int(head.split()[1]), await self.reader.readexactly(length)

    async def until_closed(self) -> None:
        try:
            while await self.reader.read(65536):
                pass
        except OSError:
            pass


Talk = Callable[[Callable[[], Awaitable[Dialled]], ConnectionTable], Awaitable[None]]


def talk(
    what: Talk, limits: ConnectionLimits, *, tls: Tls | None = None, proxies: str = ""
) -> None:
    """Run a client against a server with these limits; nothing is left of it."""
    trusted = TrustedProxies([proxies] if proxies else ())
    table = ConnectionTable(limits, SystemClock().monotonic)
    server = HttpServer(uvicorn_config(app, tls, trusted), table=table, proxies=trusted)
    context = None
    if tls is not None:
        context = ssl.create_default_context(cafile=str(tls.trusted))

    @asynccontextmanager
    async def clients(port: int) -> AsyncIterator[Callable[[], Awaitable[Dialled]]]:
        dialled = list[Dialled]()

        async def dial(ssl: ssl.SSLContext | None = context) -> Dialled:
            pair = await asyncio.open_connection("127.0.0.1", port, ssl=ssl)
            dialled.append(Dialled(*pair))
            return dialled[-1]

        try:
            yield dial
        finally:
            for one in dialled:
                one.writer.transport.abort()

    async def run() -> None:
        async with serving(None, server) as port, asyncio.timeout(PATIENCE_SECONDS):
            async with clients(port) as dial:
                await what(dial, table)
            while len(table):
                await asyncio.sleep(0.01)

    uvloop.run(run())


@pytest.mark.parametrize(
    "line", [b"X-A: b\r\n", b"X-Long: " + b"a" * 30_000, b"\r\n", b"a"], ids=repr
)
def test_a_head_without_end_is_refused_after_a_bounded_number_of_bytes(
    line: bytes,
) -> None:
    limits = ConnectionLimits(head_bytes=64 * 1024)

    async def endless(
        dial: Callable[[], Awaitable[Dialled]], table: ConnectionTable
    ) -> None:
        client = await dial()
        sent = 0
        try:
            await client.send(b"" if line in (b"\r\n", b"a") else GET)
            while sent < 50_000_000 and not client.reader.at_eof():
                piece = line * (1 + 16_384 // len(line))
                await client.send(piece)
                sent += len(piece)
                await asyncio.sleep(0)
        except OSError:
            pass
        assert sent < 50_000_000
        assert (
            table.refused[ClosedReason.HEAD_SIZE]
            + table.refused[ClosedReason.MALFORMED]
            == 1
        )
        calm = await dial()
        await calm.send(GET + b"\r\n")
        assert (await calm.answer())[0] == 200

    talk(endless, limits)


def test_too_many_headers_are_refused_with_the_numbers() -> None:
    async def many(
        dial: Callable[[], Awaitable[Dialled]], table: ConnectionTable
    ) -> None:
        client = await dial()
        await client.send(GET + b"X: y\r\n" * 200 + b"\r\n")
        status, body = await client.answer()
        assert status == 431
        error = json.loads(body)["error"]
        assert error["code"] == "too_large"
        assert "65,536 bytes and 100 headers" in error["message"]
        await client.until_closed()

    talk(many, ConnectionLimits())


def test_trailers_without_end_are_refused_too() -> None:
    async def trailers(
        dial: Callable[[], Awaitable[Dialled]], table: ConnectionTable
    ) -> None:
        client = await dial()
        await client.send(GET + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n")
        try:
            for _ in range(2000):
                await client.send(b"X-Trailer: " + b"a" * 1000)
                await asyncio.sleep(0)
        except OSError:
            pass
        await client.until_closed()
        assert table.refused[ClosedReason.HEAD_SIZE] == 1

    talk(trailers, ConnectionLimits())


def test_a_flood_of_requests_on_one_connection_is_refused() -> None:
    async def pipeline(
        dial: Callable[[], Awaitable[Dialled]], table: ConnectionTable
    ) -> None:
        client = await dial()
        await client.send((GET + b"\r\n") * 1000)
        await client.until_closed()
        assert table.refused[ClosedReason.PIPELINE] == 1
        calm = await dial()
        await calm.send((GET + b"\r\n") * 3)
        assert [(await calm.answer())[0] for _ in range(3)] == [200, 200, 200]

    talk(pipeline, ConnectionLimits())


@pytest.mark.parametrize("sent", [b"", b"GET / HT", GET + b"X-Slow: a"], ids=repr)
def test_slow_ones_are_closed(sent: bytes) -> None:
    async def slow(
        dial: Callable[[], Awaitable[Dialled]], table: ConnectionTable
    ) -> None:
        client = await dial()
        await client.send(sent)
        await client.until_closed()
        assert table.refused[ClosedReason.HEAD_TIME] == 1

    talk(slow, ConnectionLimits(head_seconds=SHORT))


def test_the_rest_of_a_body_that_nobody_wants_is_not_read_for_ever() -> None:
    async def body(
        dial: Callable[[], Awaitable[Dialled]], table: ConnectionTable
    ) -> None:
        client = await dial()
        await client.send(GET + b"Content-Length: 1000000000\r\n\r\n")
        assert (await client.answer())[0] == 200
        try:
            while not client.reader.at_eof():
                await client.send(b"a")
                await asyncio.sleep(0.02)
        except (OSError, RuntimeError):
            # closed; uvloop says the latter of a closed transport
            pass
        assert table.refused[ClosedReason.HEAD_TIME] == 1

    talk(body, ConnectionLimits(head_seconds=SHORT))


def test_a_handshake_without_end_is_closed_and_the_next_one_gets_in(
    tmp_path: Path,
) -> None:
    place = ClusterDir(tmp_path / "c")
    place.create()
    tls = tls_of(place, ClusterSettings(host="0.0.0.0"), SystemClock().wall())
    assert tls is not None

    async def silent(
        dial: Callable[..., Awaitable[Dialled]], table: ConnectionTable
    ) -> None:
        for sent in (b"", b"\x16\x03\x01"):
            client = await dial(None)
            await client.send(sent)
            await client.until_closed()
        while (
            table.refused[ClosedReason.HEAD_TIME]
            + table.refused[ClosedReason.HANDSHAKE]
            < 2
        ):
            await asyncio.sleep(0.01)
        calm = await dial()
        await calm.send(GET + b"\r\n")
        head = await calm.reader.readuntil(b"\r\n\r\n")
        assert f"strict-transport-security: {HSTS}".encode() in head

    talk(silent, ConnectionLimits(head_seconds=1.0), tls=tls)


def test_connections_that_are_held_open_keep_nobody_out() -> None:
    async def crowd(
        dial: Callable[[], Awaitable[Dialled]], table: ConnectionTable
    ) -> None:
        agent = await dial()
        await agent.send(
            b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: right\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert b" 101 " in await agent.reader.readuntil(b"\r\n\r\n")
        for at in range(300):
            await (await dial()).send(b"" if at % 2 else GET)
        for _ in range(20):
            calm = await dial()
            await calm.send(GET + b"Connection: close\r\n\r\n")
            assert (await calm.answer())[0] == 200
        assert table.unproven <= 30
        assert table.refused[ClosedReason.ADDRESS] > 200
        assert not agent.reader.at_eof()

    talk(crowd, ConnectionLimits(total=60, per_address=30))


@pytest.mark.parametrize(
    ("proxies", "seen"), [("", "127.0.0.1"), ("127.0.0.0/8", "203.0.113.9")]
)
def test_a_forwarded_address_counts_from_a_trusted_proxy_alone(
    proxies: str, seen: str
) -> None:
    async def forwarded(
        dial: Callable[[], Awaitable[Dialled]], table: ConnectionTable
    ) -> None:
        client = await dial()
        said = b"X-Forwarded-For: 198.51.100.1, 203.0.113.9\r\nX-Forwarded-Proto: https\r\n\r\n"
        await client.send(GET + said)
        scheme = "https" if proxies else "http"
        assert json.loads((await client.answer())[1]) == [seen, scheme]

    talk(forwarded, ConnectionLimits(), proxies=proxies)
