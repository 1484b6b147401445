"""Work on a prompt at a prefill replica, before another replica answers the request."""

from typing import Final, Protocol

from corral.gateway.framing.answer_framing import AnswerHead
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.replicas.replica_connection import (
    REPLICA_CLOSED,
    ConnectionPool,
    LossKind,
    ReplicaConnection,
)
from corral.gateway.requests.attempt import ReplicaAttempt

MOST_ANSWER_BYTES: Final = 4 * 1024 * 1024


class PrefilledAnswer(Protocol):
    """Request whose prompt is computed apart."""

    def prefill_done(self, stage: "PrefillStage", status: int, answer: bytes) -> None:
        """Take the whole answer of the prefill replica."""

    def prefill_lost(self, stage: "PrefillStage", kind: LossKind) -> None:
        """Take note that no answer of the prefill replica comes."""


class PrefillStage:
    """Receiver of the answer of a prefill replica.

    Attributes:
        attempt: The work there; None when it is over.
    """

    __slots__ = (
        "_body",
        "_head",
        "_parts",
        "_request",
        "_request_id",
        "_size",
        "_status",
        "attempt",
    )

    def __init__(
        self,
        request: PrefilledAnswer,
        attempt: ReplicaAttempt,
        head: RequestHead,
        request_id: bytes,
        body: bytes,
    ) -> None:
        self._request = request
        self.attempt: ReplicaAttempt | None = attempt
        self._head = head
        self._request_id = request_id
        self._body = body
        self._status = 0
        self._parts: list[bytes] = []
        self._size = 0

    def begin(self) -> None:
        """Send the request on an idle connection or a new one."""
        attempt = self.attempt
        assert attempt is not None
        connection = attempt.pool.take_idle()
        if connection is None:
            attempt.pool.connect(self)
        else:
            self.connection_ready(connection)

    def end(self) -> None:
        """Stop the work, if it still goes on, and release what it holds."""
        attempt = self.attempt
        self.attempt = None
        if attempt is not None:
            attempt.drop_connection()
            attempt.leave()

    def connection_ready(self, connection: ReplicaConnection) -> None:
        attempt = self.attempt
        if attempt is None:  # the request went on without it, or the client has left
            connection.pool.release(connection)
            return
        attempt.connection = connection
        connection.send(
            self, attempt.pool.request(self._head, self._request_id, self._body)
        )

    def connection_refused(self, pool: ConnectionPool) -> None:
        if self.attempt is not None:
            self._request.prefill_lost(self, LossKind.REFUSED)

    def answer_begins(self, head: AnswerHead, payload: bytes, *, is_done: bool) -> None:
        self._status = head.status
        if is_done and self.attempt is not None:
            self.attempt.connection = None
        if head.is_encoded or head.is_event_stream:
            self._request.prefill_lost(self, LossKind.BAD_ANSWER)
        else:
            self.answer_continues(payload, is_done=is_done)

    def answer_continues(self, payload: bytes, *, is_done: bool) -> None:
        attempt = self.attempt
        assert attempt is not None
        self._parts.append(payload)
        self._size += len(payload)
        if is_done:
            attempt.connection = None
            self._request.prefill_done(self, self._status, b"".join(self._parts))
        elif self._size > MOST_ANSWER_BYTES:
            self._request.prefill_lost(self, LossKind.BAD_ANSWER)

    def answer_closed(self) -> None:
        self.answer_continues(b"", is_done=True)

    def answer_lost(self, kind: LossKind, message: str) -> None:
        attempt = self.attempt
        assert attempt is not None
        connection = attempt.connection
        attempt.connection = None
        if (
            kind is LossKind.CLOSED
            and message == REPLICA_CLOSED
            and not self._status
            and connection is not None
            and connection.is_reused
        ):
            # the replica may only have closed an idle connection
            attempt.pool.connect(self)
            return
        self._request.prefill_lost(self, kind)
