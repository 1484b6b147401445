"""Connection of a client: requests are read strictly and answered in their order."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from corral.gateway.framing.chunked_body import ChunkedBody
from corral.gateway.framing.request_head import (
    HEAD_BYTES,
    URL_BYTES,
    RequestHead,
    RequestHeads,
)
from corral.gateway.openai_errors import (
    GatewayCode,
    GatewayRefusal,
    HeadRefused,
    refused,
    render_refusal,
)

PIPELINED_BYTES: Final = 64 * 1024
WRITE_BUFFER_BYTES: Final = 64 * 1024
HEAD_SECONDS: Final = 10.0
BODY_SECONDS: Final = 300.0
BODY_SILENCE_SECONDS: Final = 30.0
KEEP_ALIVE_SECONDS: Final = 75.0
LINGER_SECONDS: Final = 2.0
NO_END: Final = 1 << 62


class RequestUnderWay(Protocol):
    """The request that a connection waits for."""

    def pause(self) -> None:
        """Stop reading the answer: the client reads too slowly."""

    def resume(self) -> None:
        """Read the answer again."""

    def client_gone(self) -> None:
        """End the work: the client has left."""


class BodyReceiver(RequestUnderWay, Protocol):
    """Request that takes its body as it comes.

    Attributes:
        body_limit: Most bytes of the body.
        request_id: Id of the request, which each answer has.
    """

    body_limit: int
    request_id: bytes

    def begin(self) -> None:
        """Begin, before the first part of the body."""

    def body_part(self, payload: bytes, *, is_done: bool) -> None:
        """Take the next part of the body, or of what a tunnel carries."""

    def body_refused(self, refusal: GatewayRefusal) -> None:
        """End the work: the body is not valid. The client waits for the refusal."""


class RequestHandler(Protocol):
    """Handler of the requests of all connections."""

    now: Callable[[], float]
    heads: RequestHeads
    connections: "set[ClientConnection]"
    reading: "set[ClientConnection]"
    body_limit: int

    def request_id_of(self, head: RequestHead) -> bytes:
        """Return the id of a request: that of the client, or else a new one."""

    def check_head(self, head: RequestHead) -> object:
        """Refuse a request before its body is read. Raises: HeadRefused."""

    def serve(self, client: "ClientConnection", head: RequestHead, body: bytes) -> None:
        """Answer one whole request."""

    def receive(
        self, client: "ClientConnection", head: RequestHead, length: int
    ) -> "BodyReceiver | None":
        """Return the request that takes its body as it comes; None if the body is to
        be read first. Raises: HeadRefused."""

    def count(self, status: int) -> None:
        """Count an answer that the gateway has made itself."""

    def reserve_bytes(self, size: int) -> None:
        """Reserve memory for a body. Raises: HeadRefused."""

    def release_bytes(self, size: int) -> None:
        """Release the memory of a body."""


class ClientConnection(asyncio.Protocol):
    """Server's side of one client connection."""

    __slots__ = (
        "_body_deadline",
        "_buffer",
        "_chunks",
        "_gateway",
        "_head",
        "_is_consuming",
        "_is_paused",
        "_left",
        "_parts",
        "_receiver",
        "_reserved",
        "deadline",
        "is_lingering",
        "request",
        "transport",
    )

    def __init__(self, gateway: RequestHandler) -> None:
        self._gateway = gateway
        self.transport: asyncio.Transport | None = None
        self.request: RequestUnderWay | None = None
        self.deadline = 0.0
        self.is_lingering = False
        self._buffer = b""
        self._head: RequestHead | None = None
        self._parts: list[bytes] = []
        self._left = 0
        self._receiver: BodyReceiver | None = None
        self._reserved = 0
        self._body_deadline = 0.0
        self._chunks: ChunkedBody | None = None
        self._is_consuming = False
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.deadline = self._gateway.now() + HEAD_SECONDS
        self._gateway.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self.is_lingering:
            return
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        if self.request is None:
            self._consume(data)
        elif self._receiver is not None:
            self._pass_body(self._receiver, data)
        else:
            self._hold(data)

    def _hold(self, data: bytes) -> None:
        """Keep the requests that came before the answer to the previous one."""
        self._buffer = data
        if len(data) > PIPELINED_BYTES and self.transport and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def _consume(self, data: bytes) -> None:
        self._is_consuming = True
        try:
            while data and self.request is None and not self.is_lingering:
                if self._head is None:
                    data = self._read_head(data)
                else:
                    data = self._read_body(self._head, data)
        except HeadRefused as error:
            self.refuse_and_close(error.refusal)
            data = b""
        finally:
            self._is_consuming = False
        if not data or self.is_lingering:
            return
        if self._receiver is not None:
            self._pass_body(self._receiver, data)
        else:
            self._hold(data)

    def _read_head(self, data: bytes) -> bytes:
        """Read a head, and the body if all of it is there; return the rest."""
        while data.startswith(b"\r\n"):
            data = data[2:]
        end = data.find(b"\r\n\r\n") + 4
        if end < 4:
            self._wait_for_head(data)
            return b""
        gateway = self._gateway
        head, length = gateway.heads.read(data[:end])
        if length >= 0:
            body_end = end + length
            if len(data) >= body_end:
                body = data[end:body_end]
                gateway.serve(self, head, body)
                return data[body_end:]
        try:
            receiver = gateway.receive(self, head, length)
            if receiver is None:
                gateway.check_head(head)
                self._begin_body(head, length)
        except HeadRefused as error:
            self.refuse_and_close(error.refusal, gateway.request_id_of(head))
            return b""
        if receiver is not None:
            self._begin_stream(receiver, head, length)
        return data[end:]

    def _wait_for_head(self, data: bytes) -> None:
        if not data:
            return
        if b"\r\n" not in data and len(data) > URL_BYTES + 32:
            raise refused(
                GatewayCode.URL_TOO_LONG, f"a URL has at most {URL_BYTES} bytes"
            )
        if len(data) > HEAD_BYTES:
            raise refused(
                GatewayCode.HEAD_TOO_LARGE, f"a head has at most {HEAD_BYTES} bytes"
            )
        if data.count(b"\n") != data.count(b"\r\n") or b"\0" in data:
            raise refused(
                GatewayCode.BAD_FRAMING, "every line of a head ends with CR LF"
            )
        if not self._buffer:
            self._read_until(HEAD_SECONDS)
        self._buffer = data

    def _read_until(self, seconds: float) -> None:
        """Set the time until which the head or the body must be there."""
        if self not in self._gateway.reading:
            self.deadline = self._gateway.now() + seconds
            self._gateway.reading.add(self)

    def _begin_body(self, head: RequestHead, length: int) -> None:
        limit = self._gateway.body_limit
        if length > limit:
            raise refused(
                GatewayCode.BODY_TOO_LARGE, f"a body has at most {limit} bytes"
            )
        self._head = head
        self._left = length
        self._parts = []
        if head.is_chunked:
            self._chunks = ChunkedBody(limit)
        else:
            self._reserve(length)
        self._gateway.reading.discard(self)
        self._read_until(BODY_SILENCE_SECONDS)
        self._body_deadline = self.deadline - BODY_SILENCE_SECONDS + BODY_SECONDS
        if head.expects_continue and self.transport is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # bodies that are passed on as they come, and tunnels

    def _begin_stream(
        self, receiver: BodyReceiver, head: RequestHead, length: int
    ) -> None:
        self._gateway.reading.discard(self)
        self.request = receiver
        self._receiver = receiver
        self._left = length
        if head.is_chunked:
            self._chunks = ChunkedBody(receiver.body_limit)
        if head.expects_continue:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        receiver.begin()

    def begin_tunnel(self, receiver: BodyReceiver) -> None:
        """Pass on all that comes from now on."""
        self._receiver = receiver
        self._left = NO_END
        data = self._buffer
        self._buffer = b""
        self.resume_reading()
        if data:
            self._pass_body(receiver, data)

    def _pass_body(self, receiver: BodyReceiver, data: bytes) -> None:
        try:
            payload, rest, is_done = self._payload_of(data)
        except HeadRefused as error:
            self._end_stream()
            receiver.body_refused(error.refusal)
            self.refuse_and_close(error.refusal, receiver.request_id)
            return
        if is_done:
            self._end_stream()
            self._buffer = rest
        receiver.body_part(payload, is_done=is_done)

    def _payload_of(self, data: bytes) -> tuple[bytes, bytes, bool]:
        """Return the payload in these bytes, what comes after the body, and whether the
        body has ended. Raises: HeadRefused."""
        if self._chunks is not None:
            payload = self._chunks.feed(data)
            return payload, self._chunks.rest, self._chunks.is_done
        payload = data[: self._left]
        if self._left != NO_END:
            self._left -= len(payload)
        return payload, data[len(payload) :], not self._left

    def _end_stream(self) -> None:
        self._receiver = None
        self._chunks = None
        self._left = 0

    def await_body(self, seconds: float) -> None:
        """Set the time until which the next part of the body must be there."""
        self._gateway.reading.add(self)
        self.deadline = self._gateway.now() + seconds

    def stop_waiting(self) -> None:
        self._gateway.reading.discard(self)
        self.deadline = 0.0

    def hand_body_to(self, receiver: BodyReceiver) -> None:
        """Let another request take the rest of the body."""
        if self._chunks is not None and self._receiver is not None:
            self._chunks.lower_limit(self._receiver.body_limit - receiver.body_limit)
        self.request = receiver
        self._receiver = receiver

    def go_on(self) -> None:
        """Read the requests that came with the end of the body, unless one is under
        way."""
        if self.request is None and self._buffer and not self._is_consuming:
            data = self._buffer
            self._buffer = b""
            self._consume(data)

    def pause_reading(self) -> None:
        """Read nothing for now: the replica takes the body too slowly."""
        if self.transport is not None and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.transport is not None and self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()

    def exchange_done(self, *, keeps_alive: bool) -> None:
        """Go on with the next request, or close. A client whose body has not ended gets
        the time to read the answer."""
        if self._receiver is None:
            self.request_done(keeps_alive=keeps_alive)
            return
        self._end_stream()
        self.request = None
        self.resume_reading()
        self._linger()

    def _reserve(self, size: int) -> None:
        """Count the bytes of a body that is being read. Raises: HeadRefused."""
        self._gateway.reserve_bytes(size)
        self._reserved += size

    def _read_body(self, head: RequestHead, data: bytes) -> bytes:
        now = self._gateway.now()
        self.deadline = min(now + BODY_SILENCE_SECONDS, self._body_deadline)
        if self._chunks is not None:
            payload = self._chunks.feed(data)
            self._reserve(len(payload))
            self._parts.append(payload)
            if not self._chunks.is_done:
                return b""
            rest = self._chunks.rest
        else:
            part = data[: self._left]
            self._parts.append(part)
            self._left -= len(part)
            if self._left:
                return b""
            rest = data[len(part) :]
        body = b"".join(self._parts)
        self._end_body()
        self._gateway.serve(self, head, body)
        return rest

    def _end_body(self) -> None:
        self._head = None
        self._parts = []
        self._chunks = None
        self._gateway.release_bytes(self._reserved)
        self._reserved = 0
        self._gateway.reading.discard(self)

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def request_done(self, *, keeps_alive: bool) -> None:
        """Go on with the next request, or close."""
        self.request = None
        if not keeps_alive:
            self.close()
            return
        self.deadline = 0.0
        if self._is_paused and self.transport is not None:
            self._is_paused = False
            self.transport.resume_reading()
        if self._buffer and not self._is_consuming:
            data = self._buffer
            self._buffer = b""
            self._consume(data)

    def refuse_and_close(
        self, refusal: GatewayRefusal, request_id: bytes = b""
    ) -> None:
        """Answer with a refusal and close, since no next request can be found.

        Bytes that still come are dropped for a while: closing at once would reset the
        connection before the client has read the answer.

        Args:
            request_id: Id of the request; empty: that of the body which is read, if any.
        """
        if not request_id and self._head is not None:
            request_id = self._gateway.request_id_of(self._head)
        self._end_body()
        if self.transport is None or self.transport.is_closing():
            return
        self._gateway.count(refusal.status)
        self.write(render_refusal(refusal, closes=True, request_id=request_id))
        self._linger()

    def _linger(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        self.is_lingering = True
        self._buffer = b""
        self.deadline = self._gateway.now() + LINGER_SECONDS
        self._gateway.reading.add(self)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def expire(self) -> None:
        """End a connection whose head or body is late, or which lingers."""
        self._gateway.reading.discard(self)
        if self.is_lingering:
            self.abort()
            return
        refusal = GatewayRefusal(
            GatewayCode.REQUEST_TIMEOUT, "the request did not come in time"
        )
        self.refuse_and_close(refusal)

    def close(self) -> None:
        """Close after what was written; later requests are not read."""
        self.is_lingering = True
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    @property
    def address(self) -> bytes:
        """Address of the client; `unknown` where it has none."""
        peer = None
        if self.transport is not None:
            peer = self.transport.get_extra_info("peername")
        return str(peer[0]).encode() if peer else b"unknown"

    @property
    def is_tls(self) -> bool:
        return (
            self.transport is not None
            and self.transport.get_extra_info("sslcontext") is not None
        )

    @property
    def is_idle(self) -> bool:
        return self.request is None and self._head is None and not self._buffer

    def pause_writing(self) -> None:
        if self.request is not None:
            self.request.pause()

    def resume_writing(self) -> None:
        if self.request is not None:
            self.request.resume()

    def eof_received(self) -> bool:
        # a client that has left and one that will only read look alike
        self.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._gateway.connections.discard(self)
        self._end_body()
        request = self.request
        self.request = None
        if request is not None:
            request.client_gone()
