"""Requests that the head answers: files and batches. Bytes pass both ways as they come,
and neither body is ever in memory as a whole."""

import asyncio
import logging
from collections import deque
from contextlib import suppress
from http import HTTPStatus
from typing import Final, Protocol

from corral.domain.errors import CorralError
from corral.gateway.framing.answer_framing import (
    ANSWER_HEAD_BYTES,
    AnswerBody,
    AnswerHead,
    BodyFraming,
    FramingFault,
    read_answer_head,
)
from corral.gateway.framing.answer_text import chunk
from corral.gateway.framing.client_connection import ClientConnection
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.head.head_connection import HeadAddress, connect_to_head
from corral.gateway.openai_errors import (
    GatewayCode,
    GatewayRefusal,
    HeadRefused,
    refused,
    render_refusal,
)

log = logging.getLogger(__name__)

FILES_PATH: Final = b"/v1/files"
BATCHES_PATH: Final = b"/v1/batches"
METHODS: Final = frozenset({b"GET", b"POST", b"PUT", b"DELETE"})
MOST_FORWARDS: Final = 64  # at once
BODY_BYTES: Final = 1 << 31  # the head has lower limits
QUEUED_BYTES: Final = 256 * 1024  # of a body, above which the client is not read
READ_BYTES: Final = 64 * 1024
CONNECT_SECONDS: Final = 5.0
BODY_SILENCE_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 120.0  # after the body, and between two parts of the answer
CLIENT_SECONDS: Final = 300.0  # for a client that does not read
RETRY_SECONDS: Final = 5.0
TOO_MANY: Final = GatewayRefusal(
    GatewayCode.OVERLOADED,
    f"{MOST_FORWARDS} requests for files and batches are under way",
    retry_after=RETRY_SECONDS,
)
HEAD_AWAY: Final = GatewayRefusal(
    GatewayCode.HEAD_AWAY,
    "the head of the cluster cannot be reached now",
    retry_after=RETRY_SECONDS,
)
TOO_LATE: Final = GatewayRefusal(
    GatewayCode.REQUEST_TIMEOUT, "the request did not come in time"
)


def is_forwarded(path: bytes) -> bool:
    """Return whether the head answers requests to this path."""
    return any(
        path == root or path.startswith(root + b"/")
        for root in (FILES_PATH, BATCHES_PATH)
    )


class ForwardHost(Protocol):
    """Parts of the gateway process that a forwarded request needs."""

    is_draining: bool
    forwards: "set[HeadForward]"

    def count(self, status: int) -> None:
        """Count an answer of the gateway."""


class _BodyLate(Exception):
    pass


class HeadForward:
    """One request to the head, which takes its body as it comes.

    Attributes:
        queued_bytes: Bytes of the body that wait to be sent.
    """

    body_limit = BODY_BYTES

    def __init__(
        self,
        gateway: ForwardHost,
        client: ClientConnection,
        address: HeadAddress,
        head: RequestHead,
        length: int,
        request_id: bytes,
    ) -> None:
        self._gateway = gateway
        self._client = client
        self._address = address
        self._head = head
        self._length = length
        self.request_id = request_id
        self._parts: deque[bytes] = deque()
        self.queued_bytes = 0
        self._is_body_done = length == 0 and not head.is_chunked
        self._has_answered = False
        self._arrived = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin, before the first part of the body."""
        self._gateway.forwards.add(self)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def body_part(self, payload: bytes, *, is_done: bool) -> None:
        """Take the next part of the body."""
        if payload:
            self._parts.append(payload)
            self.queued_bytes += len(payload)
        self._is_body_done = self._is_body_done or is_done
        self._arrived.set()
        if self.queued_bytes > QUEUED_BYTES and not self._is_body_done:
            self._client.pause_reading()

    def body_refused(self, refusal: GatewayRefusal) -> None:
        """End the work: the body is not valid."""
        self._cancel()
        self._client.request = None

    def pause(self) -> None:
        """Stop reading the answer: the client reads too slowly."""
        self._may_write.clear()

    def resume(self) -> None:
        self._may_write.set()

    def client_gone(self) -> None:
        """End the work: the client has left."""
        self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._gateway.forwards.discard(self)

    async def _run(self) -> None:
        try:
            await self._exchange()
        except _BodyLate:
            self._refuse(TOO_LATE)
        except (OSError, ValueError, EOFError, FramingFault, CorralError) as error:
            log.warning("the head does not answer: %s", error)
            self._refuse(HEAD_AWAY)
        finally:
            self._gateway.forwards.discard(self)

    async def _exchange(self) -> None:
        """Send the request, and pass on the answer, which may come before the end of
        the body. Raises: _BodyLate, OSError, EOFError, FramingFault, CorralError."""
        key = (self._head.key or b"").decode("ascii", errors="replace")
        async with asyncio.timeout(CONNECT_SECONDS):
            connection = await connect_to_head(self._address, key)
        reader, writer = connection.reader, connection.writer
        writer.write(self._request_head(connection.host))
        sender = asyncio.create_task(self._send_body(writer))
        try:
            answer = asyncio.create_task(_read_head(reader))
            try:
                await asyncio.wait(
                    (sender, answer), return_when=asyncio.FIRST_COMPLETED
                )
                if not answer.done() and sender.exception() is not None:
                    # the head may have answered before it closed
                    async with asyncio.timeout(1.0):
                        await asyncio.wait((answer,))
                async with asyncio.timeout(ANSWER_SECONDS):
                    head, length, data = await answer
            except TimeoutError:
                if sender.done() and sender.exception() is not None:
                    raise sender.exception() from None  # type: ignore[misc]
                raise
            finally:
                answer.cancel()
            await self._pass(reader, head, length, data)
        finally:
            sender.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await sender
            writer.transport.abort()

    def _request_head(self, host: bytes) -> bytes:
        """Return the head for the request to the head of the cluster."""
        head = self._head
        target = head.path + (b"?" + head.query if head.query else b"")
        lines = [
            b"%b %b HTTP/1.1" % (head.method, target),
            b"Host: %b" % host,
            b"Connection: close",
            b"Authorization: Bearer %b" % (head.key or b""),
            b"Accept: %b" % head.accept,
            b"x-request-id: %b" % self.request_id,
        ]
        if head.is_chunked:
            lines.append(b"Transfer-Encoding: chunked")
        elif self._length or head.method != b"GET":
            lines.append(b"Content-Length: %d" % self._length)
        if self._length or head.is_chunked:
            lines.append(b"Content-Type: %b" % head.content_type)
        return b"\r\n".join([*lines, b"", b""])

    async def _send_body(self, writer: asyncio.StreamWriter) -> None:
        while True:
            while self._parts:
                part = self._parts.popleft()
                writer.write(
                    chunk(part, is_last=False) if self._head.is_chunked else part
                )
                await writer.drain()
                self.queued_bytes -= len(part)
                if self.queued_bytes <= QUEUED_BYTES:
                    self._client.resume_reading()
            if self._is_body_done:
                break
            self._arrived.clear()
            try:
                async with asyncio.timeout(BODY_SILENCE_SECONDS):
                    await self._arrived.wait()
            except TimeoutError:
                raise _BodyLate from None
        if self._head.is_chunked:
            writer.write(chunk(b"", is_last=True))
        await writer.drain()

    async def _pass(
        self, reader: asyncio.StreamReader, head: AnswerHead, length: int, data: bytes
    ) -> None:
        """Pass on the answer, whose first bytes are `data`."""
        keeps_alive = self._keeps_alive
        is_chunked = head.framing is not BodyFraming.LENGTH
        framing = b"Content-Length: %d" % max(0, length)
        if is_chunked:
            framing = b"Transfer-Encoding: chunked"
        lines = [
            b"HTTP/1.1 %d %b" % (head.status, _phrase(head.status)),
            head.passed + framing,
            b"x-request-id: %b" % self.request_id,
        ]
        if not keeps_alive:
            lines.append(b"Connection: close")
        self._has_answered = True
        self._client.write(b"\r\n".join([*lines, b"", b""]))
        body = AnswerBody(head, length)
        while True:
            payload = body.feed(data) if data else b""
            if payload:
                self._client.write(
                    chunk(payload, is_last=False) if is_chunked else payload
                )
            if body.is_done:
                break
            async with asyncio.timeout(CLIENT_SECONDS):
                await self._may_write.wait()
            async with asyncio.timeout(ANSWER_SECONDS):
                data = await reader.read(READ_BYTES)
            if not data:
                if head.framing is BodyFraming.CLOSE:
                    break
                raise EOFError("the answer was cut short")
        if is_chunked:
            self._client.write(chunk(b"", is_last=True))
        self._gateway.count(head.status)
        self._client.exchange_done(keeps_alive=keeps_alive)

    @property
    def _keeps_alive(self) -> bool:
        head = self._head
        is_plain = head.keeps_alive and not head.is_http10
        return is_plain and self._is_body_done and not self._gateway.is_draining

    def _refuse(self, refusal: GatewayRefusal) -> None:
        """End the request with a refusal; cut an answer that has begun."""
        if self._has_answered:
            self._client.abort()
            return
        self._gateway.count(refusal.status)
        keeps_alive = self._keeps_alive
        self._client.write(
            render_refusal(refusal, closes=not keeps_alive, request_id=self.request_id)
        )
        self._client.exchange_done(keeps_alive=keeps_alive)


def open_forward(
    gateway: ForwardHost,
    client: ClientConnection,
    address: HeadAddress,
    head: RequestHead,
    length: int,
    request_id: bytes,
) -> HeadForward:
    """Admit a request to the head. Raises: HeadRefused."""
    if head.method not in METHODS:
        raise refused(GatewayCode.METHOD_NOT_ALLOWED, "use GET, POST, PUT or DELETE")
    if length > BODY_BYTES:
        raise refused(GatewayCode.BODY_TOO_LARGE, "the body is too large")
    if len(gateway.forwards) >= MOST_FORWARDS:
        raise HeadRefused(TOO_MANY)
    return HeadForward(gateway, client, address, head, length, request_id)


def _phrase(status: int) -> bytes:
    """Return the reason phrase of a status."""
    with suppress(ValueError):
        return HTTPStatus(status).phrase.encode()
    return b""


async def _read_head(reader: asyncio.StreamReader) -> tuple[AnswerHead, int, bytes]:
    """Return the head of the answer, its Content-Length, and the bytes that came with
    it: a head that refuses a body resets the connection soon after.

    Raises: EOFError, FramingFault, OSError.
    """
    text = b""
    while True:
        while (at := text.find(b"\r\n\r\n") + 4) < 4:
            if len(text) > ANSWER_HEAD_BYTES:
                raise FramingFault("the head of the answer is too long")
            data = await reader.read(READ_BYTES)
            if not data:
                raise EOFError("the head closed the connection")
            text += data
        head, length = read_answer_head(text[:at])
        text = text[at:]
        if head.status >= 200:
            return head, length, text
