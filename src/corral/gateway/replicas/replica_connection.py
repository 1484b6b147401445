"""Connection to a replica: one request at a time, its answer in parts as they come."""

import asyncio
from enum import StrEnum
from typing import Final, Protocol, cast

from corral.gateway.framing.answer_framing import (
    ANSWER_HEAD_BYTES,
    MOST_INTERIM_ANSWERS,
    AnswerBody,
    AnswerHead,
    AnswerHeads,
    FramingFault,
)

READ_BYTES: Final = 64 * 1024


class LossKind(StrEnum):
    """Ways in which an answer is lost."""

    REFUSED = "refused"
    CLOSED = "closed"
    BAD_ANSWER = "bad_answer"
    NO_FIRST_BYTE = "no_first_byte"
    BUSY = "busy"
    UNAVAILABLE = "unavailable"
    WRONG_KEY = "wrong_key"
    ENGINE_ERROR = "engine_error"


class ConnectionPool(Protocol):
    """Keeper of the connections to one replica."""

    def release(self, connection: "ReplicaConnection") -> None:
        """Keep a connection whose answer has ended."""

    def forget(self, connection: "ReplicaConnection") -> None:
        """Drop a connection that has ended."""


class RequestSender(Protocol):
    """Sender of a request whose body comes in parts."""

    def pause_sending(self) -> None:
        """Send no more for now: the replica reads too slowly."""

    def resume_sending(self) -> None:
        """Send again."""


class AnswerReceiver(Protocol):
    """Receiver of one answer."""

    def connection_ready(self, connection: "ReplicaConnection") -> None:
        """Send the request on a connection that was opened for it."""

    def connection_refused(self, pool: ConnectionPool) -> None:
        """Take note that the replica cannot be reached."""

    def answer_begins(self, head: AnswerHead, payload: bytes, *, is_done: bool) -> None:
        """Take the head, and the payload that came with it."""

    def answer_continues(self, payload: bytes, *, is_done: bool) -> None:
        """Take the next part of the body."""

    def answer_closed(self) -> None:
        """Take the end of an answer that ends when the replica closes."""

    def answer_lost(self, kind: LossKind, message: str) -> None:
        """Take note that no more of the answer comes."""


REPLICA_CLOSED: Final = "the replica closed the connection"
# all connections of a process read into this: each read is consumed before the next
_BUFFER: Final = bytearray(READ_BYTES)
_VIEW: Final = memoryview(_BUFFER)


class ReplicaConnection(asyncio.BufferedProtocol):
    """Client's side of one connection to a replica.

    Attributes:
        sender: Sender of a body that comes in parts; None: each request is whole.
        is_sending: Whether a part of the request's body is still to be sent.
        is_head_only: Whether the answer has no body, because the method is HEAD.
        accepts_upgrade: Whether an answer of status 101 begins a tunnel, whose bytes
            are passed on as a body without an end.
        answer_length: Content-Length of the answer; -1 without one.
    """

    __slots__ = (
        "_body",
        "_head",
        "_early_head",
        "_heads",
        "_interim",
        "_pending",
        "accepts_upgrade",
        "answer_length",
        "idle_since",
        "is_head_only",
        "is_reused",
        "is_sending",
        "pool",
        "receiver",
        "sender",
        "transport",
    )

    def __init__(self, pool: ConnectionPool, heads: AnswerHeads) -> None:
        self.pool = pool
        self.transport: asyncio.Transport | None = None
        self.receiver: AnswerReceiver | None = None
        self.is_reused = False
        self.idle_since = 0.0
        self._heads = heads
        self._head: AnswerHead | None = None
        self._early_head: AnswerHead | None = None
        self._body: AnswerBody | None = None
        self._pending = b""
        self._interim = 0
        self.sender: RequestSender | None = None
        self.is_sending = False
        self.is_head_only = False
        self.accepts_upgrade = False
        self.answer_length = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, receiver: AnswerReceiver, request: bytes) -> None:
        """Send a request; its answer goes to the receiver."""
        self.receiver = receiver
        self._interim = 0
        assert self.transport is not None
        self.transport.write(request)

    def send_part(self, data: bytes, *, is_last: bool) -> None:
        """Send a part of the request's body."""
        self.is_sending = not is_last
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def pause_writing(self) -> None:
        if self.sender is not None:
            self.sender.pause_sending()

    def resume_writing(self) -> None:
        if self.sender is not None:
            self.sender.resume_sending()

    def close(self) -> None:
        """Close after what was written. The receiver gets nothing more."""
        self.receiver = None
        self.sender = None
        if self.transport is not None:
            self.transport.close()

    def abandon(self) -> None:
        """Close at once. The receiver gets nothing more."""
        self.receiver = None
        self.sender = None
        if self.transport is not None:
            self.transport.abort()

    def pause(self) -> None:
        if self.transport is not None:
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.transport is not None:
            self.transport.resume_reading()

    def get_buffer(self, sizehint: int) -> bytearray:
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(_VIEW[:nbytes])
        if self.receiver is None:  # an answer without a question
            self.pool.forget(self)
            self.abandon()
        elif self._body is None:
            self._read_head(data)
        else:
            self._read_body(data)

    def _read_head(self, data: bytes) -> None:
        if self._pending:
            data = self._pending + data
            self._pending = b""
        end = data.find(b"\r\n\r\n") + 4
        if end < 4:
            if len(data) > ANSWER_HEAD_BYTES:
                self._fail("the head of the answer has no end")
            self._pending = data
            return
        try:
            head, length = self._heads.read(data[:end])
        except FramingFault as error:
            self._fail(str(error))
            return
        rest = data[end:]
        if head.status < 200:
            self._skip_interim(head, rest)
            return
        self.answer_length = length
        body = AnswerBody(head, 0 if self.is_head_only else length)
        self._head = head
        self._body = body
        try:
            payload = body.feed(rest) if rest else b""
        except FramingFault as error:
            self._fail(str(error))
            return
        if not payload and not body.is_done and self._waits_for_token(head):
            self._early_head = head
            return
        self._begin_answer(head, body, payload)

    def _waits_for_token(self, head: AnswerHead) -> bool:
        """Return whether the answer begins with its first token: engines such as vLLM
        send the head of a stream before they work on its prompt."""
        return head.status == 200 and head.is_event_stream and self.sender is None

    def _begin_answer(self, head: AnswerHead, body: AnswerBody, payload: bytes) -> None:
        receiver = self.receiver
        assert receiver is not None
        self._early_head = None
        if body.is_done:
            self._end()
        receiver.answer_begins(head, payload, is_done=body.is_done)

    def _skip_interim(self, head: AnswerHead, rest: bytes) -> None:
        if head.status == 101 and self.accepts_upgrade:
            self._begin_tunnel(head, rest)
            return
        self._interim += 1
        if self._interim > MOST_INTERIM_ANSWERS or head.status == 101:
            self._fail(f"the replica sent too many answers of status {head.status}")
        elif rest:
            self._read_head(rest)

    def _begin_tunnel(self, answer: AnswerHead, rest: bytes) -> None:
        head = AnswerHead(answer.status, answer.passed)
        head.fields = answer.fields
        head.keeps_alive = False
        self._head = head
        self._body = AnswerBody(head, -1)
        assert self.receiver is not None
        self.receiver.answer_begins(head, rest, is_done=False)

    def _read_body(self, data: bytes) -> None:
        body = self._body
        receiver = self.receiver
        assert body is not None
        assert receiver is not None
        try:
            payload = body.feed(data)
        except FramingFault as error:
            self._fail(str(error))
            return
        if self._early_head is not None:
            if payload or body.is_done:
                self._begin_answer(self._early_head, body, payload)
        elif body.is_done:
            self._end()
            receiver.answer_continues(payload, is_done=True)
        elif payload:
            receiver.answer_continues(payload, is_done=False)

    def _end(self) -> None:
        """Return to the pool before the receiver gets the end, so that it can send the
        next request here."""
        assert self._head is not None
        assert self._body is not None
        keeps_alive = self._head.keeps_alive and not self._body.has_excess
        if self.sender is not None:
            keeps_alive = keeps_alive and not self.is_sending
            self.sender = None
            self.is_head_only = False
            self.accepts_upgrade = False
        self.receiver = None
        self._head = None
        self._body = None
        if keeps_alive:
            self.pool.release(self)
        elif self.transport is not None:
            self.transport.abort()

    def _fail(self, message: str) -> None:
        receiver = self.receiver
        self.abandon()
        if receiver is not None:
            receiver.answer_lost(LossKind.BAD_ANSWER, message)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        receiver = self.receiver
        self.receiver = None
        if receiver is None:
            self.pool.forget(self)
        elif self._ends_by_close and self._early_head is None and exc is None:
            receiver.answer_closed()
        else:
            receiver.answer_lost(LossKind.CLOSED, REPLICA_CLOSED)

    @property
    def _ends_by_close(self) -> bool:
        return self._head is not None and self._head.framing.value == "close"
