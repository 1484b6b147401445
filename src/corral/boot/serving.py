"""The server under the head: uvicorn, what it is told, and the address that it is known by."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from corral.boot.settings import ClusterSettings
from corral.boot.tls import Tls, host_of
from corral.web import Pages
from corral.wire.channel import FRAME_BYTES

CLOSE_SECONDS: Final = 1
ACCEPTED_AT_ONCE: Final = 16


class Server(uvicorn.Server):
    """Uvicorn that leaves signals to the head and says when it serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """libuv takes one connection from a listening socket each time the loop goes round. Where a
        thousand agents dial at once and a round takes long, those that are taken had given up
        before, and dial again, for ever: so each socket is listened to several times."""
        once = sockets or []
        more = [one.dup() for one in once for _ in range(ACCEPTED_AT_ONCE - 1)]
        await super().serve([*once, *more])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.serving.set()


class Http(HttpToolsProtocol):
    """Uvicorn's, which lets go of itself when a WebSocket takes its connection over.

    It and its parser hold each other, and so the buffers of the connection long after its end:
    until Python searches for garbage, which a head does rarely (boot.garbage). With agents that
    dial anew each day that would be a leak.
    """

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        del self.parser


class Inbox:
    """What has come on one WebSocket and was not read yet; one reads. In the place of uvicorn's
    asyncio.Queue, whose four deques are 3 KB of each of thousands of connections."""

    __slots__ = ("_messages", "_waiting")

    def __init__(self) -> None:
        self._messages: list[ASGIReceiveEvent] = []
        self._waiting: asyncio.Future[None] | None = None

    def empty(self) -> bool:
        return not self._messages

    def put_nowait(self, message: ASGIReceiveEvent) -> None:
        self._messages.append(message)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def get(self) -> ASGIReceiveEvent:
        while not self._messages:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        return self._messages.pop(0)


class Ws(WebSocketsSansIOProtocol):
    """Uvicorn's, with an inbox that costs little."""

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.queue = Inbox()  # type: ignore[assignment]


def uvicorn_config(app: ASGIApp, tls: Tls | None) -> uvicorn.Config:
    return uvicorn.Config(
        Pages(app),
        http=Http,
        ws=Ws,
        ws_max_size=FRAME_BYTES,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ssl_certfile=None if tls is None else str(tls.certificate),
        ssl_keyfile=None if tls is None else str(tls.key),
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )


def url_of(settings: ClusterSettings, listening: socket.socket, tls: Tls | None) -> str:
    scheme, host = "http" if tls is None else "https", host_of(settings)
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}:{listening.getsockname()[1]}"
