"""What a connection leaves behind when it is over: nothing, also where nobody looks for
garbage."""

import asyncio
import gc
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect

from corral.boot.http_protocols import Inbox
from corral.boot.http_server import HttpServer, uvicorn_config
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.tls import Tls, tls_of

OF_A_CONNECTION = (
    "Http",
    "Ws",
    "Inbox",
    "SSLProtocol",
    "SSLObject",
    "MemoryBIO",
    "Connection",
)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Says back what it hears."""
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "bytes": message["bytes"]})


@asynccontextmanager
async def serving(
    tls: Tls | None, server: HttpServer | None = None
) -> AsyncIterator[int]:
    server = server or HttpServer(uvicorn_config(app, tls))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        running = asyncio.create_task(server.serve(sockets=[listening]))
        await server.serving.wait()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await running


def left() -> Counter[str]:
    """Objects of connections that nobody has taken away."""
    kinds = Counter(type(one).__name__ for one in gc.get_objects())
    return Counter({kind: kinds[kind] for kind in OF_A_CONNECTION})


async def talk(port: int) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with connect(
        f"wss://127.0.0.1:{port}/", ssl=context, compression=None
    ) as socket:
        await socket.send(b"there?")
        assert await socket.recv() == b"there?"


def test_agents_that_dial_anew_leave_nothing_of_their_old_connections(
    tmp_path: Path,
) -> None:
    place = ClusterDir(tmp_path / "c")
    place.create()
    tls = tls_of(place, ClusterSettings(host="0.0.0.0"), 1_800_000_000.0)
    assert tls is not None

    async def dial(times: int) -> None:
        async with serving(tls) as port:
            await talk(port)
            gc.collect()
            before = left()
            for _ in range(times):
                await talk(port)
            for _ in range(20):  # the server hears of the last one's end a moment later
                await asyncio.sleep(0.05)
            assert not left() - before

    gc.disable()
    try:
        uvloop.run(dial(5))
    finally:
        gc.enable()


def test_those_who_dial_at_once_are_let_in_within_a_few_rounds_of_the_loop() -> None:
    """One a round, a slow head would take each after it has given up."""
    server = HttpServer(uvicorn_config(app, None))

    async def dial() -> int:
        async with serving(None, server) as port:
            dialled = [socket.create_connection(("127.0.0.1", port)) for _ in range(64)]
            for one in dialled:
                one.sendall(b"G")
            for _ in range(10):
                await asyncio.sleep(0)
            found = len(server.server_state.connections)
            for one in dialled:
                one.close()
        return found

    assert uvloop.run(dial()) == 64


def test_an_inbox_loses_nothing_whoever_waits_or_stops_waiting() -> None:
    async def read() -> None:
        inbox = Inbox()
        waits = asyncio.create_task(inbox.get())
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.wait([waits])
        sent = [{"type": "websocket.receive", "bytes": bytes([at])} for at in range(3)]
        for one in sent[:2]:
            inbox.put_nowait(one)  # type: ignore[arg-type]
        assert not inbox.empty()
        assert [await inbox.get(), await inbox.get()] == sent[:2]
        assert inbox.empty()
        waits = asyncio.create_task(inbox.get())
        await asyncio.sleep(0)
        inbox.put_nowait(sent[2])  # type: ignore[arg-type]
        waits.cancel()  # in the same moment
        await asyncio.wait([waits])
        assert await inbox.get() == sent[2]

    asyncio.run(read())
