"""Protocols of the head's HTTP server: those of uvicorn, within the limits of
`corral.ingress`."""

import asyncio
import json
from asyncio import Transport
from typing import Any

import httptools
import uvicorn
from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from corral.ingress.connections import (
    CONNECTION,
    ClosedReason,
    Connection,
    ConnectionLimits,
)
from corral.ingress.request_meter import RequestMeter
from corral.wire.api import error_of


def _error_response_bytes(status: str, code: str, message: str, hint: str) -> bytes:
    body = json.dumps(error_of(code, message, hint)).encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def _answer_to(why: ClosedReason, limits: ConnectionLimits) -> bytes:
    if why is ClosedReason.HEAD_SIZE:
        return _error_response_bytes(
            "431 Request Header Fields Too Large",
            "too_large",
            "the headers of this request are too large: allowed are at most "
            f"{limits.head_bytes:,} bytes and {limits.headers} headers",
            "send fewer and shorter headers",
        )
    if why is ClosedReason.PIPELINE:
        return _error_response_bytes(
            "429 Too Many Requests",
            "too_many",
            f"too many requests wait on this connection: at most {limits.pipelined} "
            "may be sent before the earlier ones are answered",
            "read the answers before you send more requests",
        )
    return _error_response_bytes(
        "400 Bad Request",
        "request_invalid",
        "this is not a valid HTTP request",
        "see docs/architecture/overview.md for the routes",
    )


class Http(HttpToolsProtocol):
    """Uvicorn's HTTP protocol, with limits on reads, and a clean end for WebSockets.

    The protocol and its parser refer to each other. They would therefore keep the
    buffers of the connection in memory after it has ended, until Python collects
    garbage. A head collects garbage rarely (boot.gc_tuning), so with agents that
    reconnect every day this would be a memory leak.
    """

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, connection: Connection
    ) -> None:
        super().__init__(config, server_state, {CONNECTION: connection})
        self._connection = connection
        self._meter = RequestMeter(connection.limits)
        self._refusal: ClosedReason | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection.end = transport
        self._connection.wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        for piece in self._meter.pieces(data):
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade:
                if self._should_upgrade():
                    self.handle_websocket_upgrade()
                return  # another upgrade is answered as if none was asked for
            except httptools.HttpParserError:
                self._refuse_connection(self._refusal or ClosedReason.MALFORMED)
                return
            if self._meter.is_over:
                self._refuse_connection(ClosedReason.HEAD_SIZE)
                return

    def _refuse_connection(self, why: ClosedReason) -> None:
        """Close the connection; send the reason first, unless a response is in
        progress."""
        self._connection.refuse(why)
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_answer_to(why, self._connection.limits))
        self.transport.close()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= self._connection.limits.pipelined:
            self._break_off(ClosedReason.PIPELINE)
        self._meter.begin()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._meter.header():
            self._break_off(ClosedReason.HEAD_SIZE)
        super().on_header(name, value)

    def _break_off(self, why: ClosedReason) -> None:
        """Record why the connection is refused, and stop the parser by an error.

        Raises: ValueError.
        """
        self._refusal = why
        raise ValueError(why.value)

    def on_headers_complete(self) -> None:
        self._meter.delivered()
        if not self.url.isascii():
            self._break_off(ClosedReason.MALFORMED)
        self._connection.serve()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._meter.delivered()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._meter.delivered()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """When a response is complete, wait for the client's next request, or for the
        rest of a refused body."""
        super().on_response_complete()
        if not self.pipeline and self.cycle.response_complete:
            self._connection.wait()

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        del self.parser


class Inbox:
    """Received frames of one WebSocket that were not read yet, for one reader. It
    replaces uvicorn's asyncio.Queue, whose four deques take 3 KB for each of thousands
    of connections."""

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
    """Uvicorn's WebSocket protocol, with an inbox that uses little memory."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.queue = Inbox()  # type: ignore[assignment]
        self._connection: Connection = app_state[CONNECTION]

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.leave()
        super().connection_lost(exc)
