"""The server under the head: uvicorn, what it is told, and the address that it is known by."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from corral.boot.settings import ClusterSettings
from corral.boot.tls import Tls, host_of
from corral.web import Pages
from corral.wire.channel import FRAME_BYTES

CLOSE_SECONDS: Final = 1


class Server(uvicorn.Server):
    """Uvicorn that leaves signals to the head and says when it serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

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


def uvicorn_config(app: ASGIApp, tls: Tls | None) -> uvicorn.Config:
    return uvicorn.Config(
        Pages(app),
        http=Http,
        ws="websockets-sansio",
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
