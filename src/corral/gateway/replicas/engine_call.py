"""Request of the gateway itself to an engine, with its whole answer."""

import asyncio
from typing import Final

from corral.gateway.framing.answer_framing import AnswerHead
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.replicas.replica_connection import (
    ConnectionPool,
    LossKind,
    ReplicaConnection,
)
from corral.gateway.replicas.replica_pool import ReplicaPool

MOST_ANSWER_BYTES: Final = 1024 * 1024
REQUEST_ID: Final = b"corral-gateway"


class EngineCallFailed(Exception):  # noqa: N818 - as LossKind, no fault of this process
    """No whole answer has come."""


async def call_engine(
    pool: ReplicaPool, method: bytes, path: bytes, body: bytes = b""
) -> tuple[int, bytes]:
    """Return the status and the body of an engine's answer. Raises: EngineCallFailed."""
    call = _EngineCall(RequestHead(method, path), body)
    pool.connect(call)
    try:
        return await call.answer
    finally:
        call.close()


class _EngineCall:
    """One request on a connection that was opened for it."""

    __slots__ = ("_body", "_connection", "_head", "_parts", "_status", "answer")

    def __init__(self, head: RequestHead, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[tuple[int, bytes]] = loop.create_future()
        self._head = head
        self._body = body
        self._status = 0
        self._parts: list[bytes] = []
        self._connection: ReplicaConnection | None = None

    def close(self) -> None:
        """Close the connection, unless it is in its pool again."""
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.abandon()

    def connection_ready(self, connection: ReplicaConnection) -> None:
        if self.answer.done():
            connection.abandon()
            return
        self._connection = connection
        pool = connection.pool
        assert isinstance(pool, ReplicaPool)
        connection.send(self, pool.request(self._head, REQUEST_ID, self._body))

    def connection_refused(self, pool: ConnectionPool) -> None:
        self._fail("the replica cannot be reached")

    def answer_begins(self, head: AnswerHead, payload: bytes, *, is_done: bool) -> None:
        self._status = head.status
        self.answer_continues(payload, is_done=is_done)

    def answer_continues(self, payload: bytes, *, is_done: bool) -> None:
        self._parts.append(payload)
        if is_done:
            self._connection = None
            if not self.answer.done():
                self.answer.set_result((self._status, b"".join(self._parts)))
        elif sum(map(len, self._parts)) > MOST_ANSWER_BYTES:
            self._fail("the answer is too long")

    def answer_closed(self) -> None:
        self.answer_continues(b"", is_done=True)

    def answer_lost(self, kind: LossKind, message: str) -> None:
        self._connection = None
        self._fail(message)

    def _fail(self, message: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(EngineCallFailed(message))
