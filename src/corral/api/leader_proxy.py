"""Proxy of a standby head: it forwards requests to the leading head, and responses to
the caller as their bytes arrive."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, Final

import httpx2
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from corral.api.route_rights import OPEN
from corral.api.settings import Seals
from corral.client.head_proof import async_hooks
from corral.domain.errors import NoLeader, WrongHead
from corral.ingress.connections import connection_of
from corral.wire.head_proof import Address, Challenge, needs_proof
from corral.wire.proven_socket import proven_socket

CONNECT_SECONDS: Final = 3.0
WAIT: Final = (
    "try again in a few seconds, when another head has taken over; see: corral status"
)
COME_AGAIN: Final = 1013
_OF_ONE_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"host",
    }
)
_FORWARDED: Final = frozenset({b"x-forwarded-for", b"x-forwarded-proto", b"forwarded"})
_CREDENTIALS: Final = (b"authorization", b"cookie")
UNAUTHORISED: Final = 401
_SAID_AGAIN: Final = (b"authorization", b"user-agent", b"origin", b"cookie")
Headers = Iterable[tuple[bytes, bytes]]


class CallerGone(Exception):
    """The caller has closed the connection."""


class Forwarder:
    """Forwarder to the leading head at one address. Each connection lasts until one of
    its sides ends it."""

    def __init__(self, url: str, trusted: ssl.SSLContext | None, seals: Seals) -> None:
        self.url = url
        self._trusted = trusted
        self._seals = seals
        self._http: httpx2.AsyncClient | None = None

    async def http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request to the leader.

        Raises: NoLeader if the leader does not answer, and no response has started yet.
        """
        request = self._client().build_request(
            scope["method"],
            httpx2.URL(self.url).copy_with(raw_path=_path_with_query(scope)),
            headers=[
                *_drop_headers(scope["headers"], _OF_ONE_HOP | _FORWARDED),
                *_forwarded(scope),
            ],
            content=_stream_request_body(receive)
            if _has_body(scope["headers"])
            else None,
        )
        try:
            answer = await self._client().send(request, stream=True)
        except (httpx2.TransportError, WrongHead) as error:
            raise self._no_answer() from error
        except CallerGone:
            return
        if answer.status_code != UNAUTHORISED:
            _mark_authenticated(scope)
        try:
            start = {"type": "http.response.start", "status": answer.status_code}
            await send(
                {**start, "headers": _drop_headers(answer.headers.raw, _OF_ONE_HOP)}
            )
            await _first_of(_give_back(answer, send), _until_gone(receive))
        finally:
            await answer.aclose()

    async def websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a WebSocket to the leader.

        Raises: NoLeader if the leader does not answer.
        """
        forwarded_headers = [
            header for header in scope["headers"] if header[0] in _SAID_AGAIN
        ]
        forwarded_headers += _forwarded(scope)
        try:
            proven = needs_proof(self.url)
            connection = await connect(
                self.url.replace("http", "ws", 1)
                + _path_with_query(scope).decode("ascii"),
                sock=await proven_socket(self.url, self._challenge) if proven else None,
                ssl=self._trusted if self.url.startswith("https") else None,
                additional_headers=[
                    (name.decode(), value.decode()) for name, value in forwarded_headers
                ],
                compression=None,
                max_size=None,  # each of the two heads has its own bound
                open_timeout=CONNECT_SECONDS,
                close_timeout=0.1,
                ping_interval=None,
                proxy=None,
                user_agent_header=None,
            )
        except InvalidStatus as no:
            await _send_denial(no, scope, receive, send)
            return
        except (OSError, TimeoutError, WebSocketException, WrongHead) as error:
            raise self._no_answer() from error
        _mark_authenticated(scope)
        async with connection:
            await receive()  # that they would like to begin
            await send({"type": "websocket.accept"})
            await _first_of(
                _forward_to_leader(receive, connection),
                _forward_to_caller(connection, send),
            )

    def _no_answer(self) -> NoLeader:
        message = f"the leading head at {self.url} does not answer"
        return NoLeader(message, hint=WAIT)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    def _challenge(self, address: Address) -> Challenge:
        """Return the challenge by which the leader proves that it has the cluster's
        key, before a caller's token is sent to it."""
        return Challenge.by_keys(self.url, self._seals.signatures, address)

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            self._http = httpx2.AsyncClient(
                timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
                limits=httpx2.Limits(
                    max_connections=None, max_keepalive_connections=20
                ),
                trust_env=False,
                verify=self._trusted or ssl.create_default_context(),
                event_hooks=async_hooks(lambda _, address: self._challenge(address)),
            )
        return self._http


def _forwarded(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the header that names the client. The leader uses it if it trusts this
    head as a proxy."""
    client = scope.get("client")
    return [] if client is None else [(b"x-forwarded-for", str(client[0]).encode())]


def _mark_authenticated(scope: Scope) -> None:
    """Record that the leading head has accepted the credentials of the request."""
    connection = connection_of(scope)
    credentials = [value for name, value in scope["headers"] if name in _CREDENTIALS]
    if connection is not None and credentials and scope["path"] not in OPEN:
        connection.prove(hashlib.sha256(b"".join(credentials)).hexdigest())


def _path_with_query(scope: Scope) -> bytes:
    query: bytes = scope["query_string"]
    return bytes(scope["raw_path"]) + (b"?" + query if query else b"")


def _drop_headers(
    headers: Headers, names: frozenset[bytes]
) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() not in names]


def _has_body(headers: Headers) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)


async def _stream_request_body(receive: Receive) -> AsyncIterator[bytes]:
    has_more_body = True
    while has_more_body:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerGone
        has_more_body = message.get("more_body", False)
        if piece := message.get("body", b""):
            yield piece


async def _give_back(answer: httpx2.Response, send: Send) -> None:
    async for piece in answer.aiter_raw():
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_denial(
    no: InvalidStatus, scope: Scope, receive: Receive, send: Send
) -> None:
    headers = [
        (name.lower().encode(), value.encode())
        for name, value in no.response.headers.raw_items()
    ]
    answer = Response(
        bytes(no.response.body or b""), status_code=no.response.status_code
    )
    answer.raw_headers = _drop_headers(headers, _OF_ONE_HOP)
    await WebSocket(scope, receive, send).send_denial_response(answer)


async def _forward_to_leader(receive: Receive, connection: ClientConnection) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            await connection.close(_close_code(message.get("code")))
            return
        data = message.get("bytes")
        await connection.send(message.get("text", "") if data is None else data)


async def _forward_to_caller(connection: ClientConnection, send: Send) -> None:
    try:
        async for frame in connection:
            kind = "text" if isinstance(frame, str) else "bytes"
            await send({"type": "websocket.send", kind: frame})
    except ConnectionClosed:
        pass
    code, reason = _close_code(connection.close_code), connection.close_reason or ""
    await send({"type": "websocket.close", "code": code, "reason": reason})


def _close_code(code: int | None) -> int:
    """Return a WebSocket close code that may be sent. For a connection that broke off
    without a code, it is one that asks the client to try again."""
    return COME_AGAIN if code in (None, 1005, 1006, 1015) else int(code or COME_AGAIN)


async def _first_of(*ways: Coroutine[Any, Any, None]) -> None:
    """Run the coroutines until one of them ends, then cancel the rest. A connection
    error also ends them; any other error is raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = task.exception()
            if error is not None and not isinstance(
                error, (OSError, ConnectionClosed, RuntimeError)
            ):
                raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
