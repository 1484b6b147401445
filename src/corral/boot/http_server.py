"""The HTTP server of the head: uvicorn, its settings, and the head's public address."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from corral.api.anonymous_rates import OpenRoutes
from corral.boot.clock import SystemClock
from corral.boot.http_protocols import Http, Ws
from corral.boot.settings import ClusterSettings
from corral.boot.tls import Tls, host_of
from corral.ingress.acceptor import Acceptor
from corral.ingress.addresses import TrustedProxies
from corral.ingress.connections import Connection, ConnectionLimits, ConnectionTable
from corral.ingress.forwarded import Forwarded
from corral.web import Pages, is_page
from corral.wire.agent_messages import FRAME_BYTES

CLOSE_SECONDS: Final = 1
HSTS: Final = "max-age=2592000"  # 30 days; without subdomains, which are not the head's


class HttpServer(uvicorn.Server):
    """Uvicorn server that leaves signals to the head, reports when it serves, and
    limits connections."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        table: ConnectionTable | None = None,
        proxies: TrustedProxies | None = None,
    ) -> None:
        super().__init__(config)
        self.serving = asyncio.Event()
        if table is None:
            table = ConnectionTable(ConnectionLimits(), SystemClock().monotonic)
        self.table = table
        self._proxies = proxies or TrustedProxies()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections through the connection table, instead of by the event
        loop's servers. Those accept one connection in each round of the loop, and begin
        TLS before the connection can be counted."""
        acceptors = [
            Acceptor(
                self.table,
                listening,
                self._make_protocol,
                tls=self.config.ssl,
                proxies=self._proxies,
            )
            for listening in sockets or ()
        ]
        for acceptor in acceptors:
            acceptor.start()
        self.servers = acceptors  # type: ignore[assignment]  # it closes them, and waits for that
        self.started = True
        self.serving.set()

    def _make_protocol(self, connection: Connection) -> asyncio.Protocol:
        return Http(self.config, self.server_state, connection)


def uvicorn_config(
    app: ASGIApp, tls: Tls | None, proxies: TrustedProxies | None = None
) -> uvicorn.Config:
    """Return the settings of uvicorn. Uvicorn itself trusts no proxy; `Forwarded`
    handles the proxies that the cluster's settings trust."""
    paced = OpenRoutes(Pages(app), is_page=is_page, clock=SystemClock().monotonic)
    return uvicorn.Config(
        Forwarded(paced, proxies) if proxies else paced,
        proxy_headers=False,
        headers=[] if tls is None else [("strict-transport-security", HSTS)],
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


def server_of(
    settings: ClusterSettings, app: ASGIApp, tls: Tls | None, table: ConnectionTable
) -> HttpServer:
    """Return the server of a cluster's settings."""
    proxies = TrustedProxies(settings.trusted_proxies)
    return HttpServer(uvicorn_config(app, tls, proxies), table=table, proxies=proxies)


def url_of(settings: ClusterSettings, listening: socket.socket, tls: Tls | None) -> str:
    scheme, host = "http" if tls is None else "https", host_of(settings)
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}:{listening.getsockname()[1]}"
