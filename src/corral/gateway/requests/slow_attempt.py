"""Attempt that is late but may still answer: it races with one at another replica."""

from typing import Protocol

from corral.gateway.framing.answer_framing import AnswerHead
from corral.gateway.replicas.replica_connection import (
    ConnectionPool,
    LossKind,
    ReplicaConnection,
)
from corral.gateway.requests.attempt import ReplicaAttempt


class RacingRequest(Protocol):
    """Request with two attempts, of which the first to answer wins."""

    def slow_attempt_answers(
        self, head: AnswerHead, payload: bytes, *, is_done: bool
    ) -> None:
        """Go on with the slow attempt, which has answered first."""

    def drop_slow_attempt(self) -> None:
        """Give up the slow attempt."""


class SlowAttempt:
    """Receiver of the answer to an attempt that is late. It has a connection."""

    __slots__ = ("_request", "attempt")

    def __init__(self, request: RacingRequest, attempt: ReplicaAttempt) -> None:
        self._request = request
        self.attempt = attempt
        assert attempt.connection is not None
        attempt.connection.receiver = self

    def connection_ready(self, connection: ReplicaConnection) -> None:
        """The attempt has its connection."""

    def connection_refused(self, pool: ConnectionPool) -> None:
        """The attempt has its connection."""

    def answer_begins(self, head: AnswerHead, payload: bytes, *, is_done: bool) -> None:
        if is_done:
            self.attempt.connection = None
        if head.status == 200 and not head.is_encoded:
            self._request.slow_attempt_answers(head, payload, is_done=is_done)
        else:
            self._request.drop_slow_attempt()

    def answer_continues(self, payload: bytes, *, is_done: bool) -> None:
        """The request takes all that follows the first part."""

    def answer_closed(self) -> None:
        """The request takes all that follows the first part."""

    def answer_lost(self, kind: LossKind, message: str) -> None:
        self.attempt.connection = None
        self._request.drop_slow_attempt()
