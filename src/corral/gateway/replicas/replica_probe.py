"""Probes of replicas: one completion of an ejected one, one connection to a suspect."""

from collections.abc import Callable
from typing import Final

import msgspec

from corral.gateway.framing.answer_framing import AnswerHead
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.replicas.replica_connection import (
    ConnectionPool,
    LossKind,
    ReplicaConnection,
)
from corral.gateway.replicas.replica_pool import ReplicaPool

PROBE_SECONDS: Final = 10.0
# for SGLang with roles, which refuses a request without a partner: one that is alone
SGLANG_ALONE: Final = {"bootstrap_host": "2.2.2.2", "bootstrap_room": 0}
_HEAD: Final = RequestHead(b"POST", b"/v1/chat/completions")


class ReplicaProbe:
    """One probe. Any answer but a refusal of the key or an error of the server shows
    that the replica is well: a replica may serve embeddings alone."""

    __slots__ = (
        "_body",
        "_connection",
        "_deadline",
        "_is_over",
        "_is_well",
        "pool",
    )

    def __init__(
        self, pool: ReplicaPool, model: str, now: float, *, is_sglang_pair: bool = False
    ) -> None:
        self.pool = pool
        self._body = {
            "model": model,
            "messages": [{"role": "user", "content": "1"}],
            "max_tokens": 1,
            **(SGLANG_ALONE if is_sglang_pair else {}),
        }
        self._deadline = now + PROBE_SECONDS
        self._connection: ReplicaConnection | None = None
        self._is_well: bool | None = None
        self._is_over = False
        pool.connect(self)

    def result(self, now: float) -> bool | None:
        """Return whether the replica is well; None while that is not known."""
        if self._is_well is None and now > self._deadline:
            self._end(is_well=False)
        return self._is_well

    def cancel(self) -> None:
        self._end(is_well=False)

    def _end(self, *, is_well: bool) -> None:
        self._is_well = is_well
        self._is_over = True
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.abandon()

    def connection_ready(self, connection: ReplicaConnection) -> None:
        if self._is_over:
            connection.abandon()
            return
        self._connection = connection
        text = msgspec.json.encode(self._body)
        connection.send(self, self.pool.request(_HEAD, b"corral-probe", text))

    def connection_refused(self, pool: ConnectionPool) -> None:
        self._end(is_well=False)

    def answer_begins(self, head: AnswerHead, payload: bytes, *, is_done: bool) -> None:
        is_well = head.status < 500 and head.status not in (401, 403)
        if is_done or not is_well:
            self._connection = None if is_done else self._connection
            self._end(is_well=is_well)

    def answer_continues(self, payload: bytes, *, is_done: bool) -> None:
        if is_done:
            self._connection = None
            self._end(is_well=True)

    def answer_closed(self) -> None:
        self.answer_continues(b"", is_done=True)

    def answer_lost(self, kind: LossKind, message: str) -> None:
        self._connection = None
        self._end(is_well=False)


class LivenessCheck:
    """Connection to a replica that has just closed another one: is it still there?"""

    __slots__ = ("_pool", "_refused")

    def __init__(
        self, pool: ReplicaPool, refused: Callable[[ReplicaPool], None]
    ) -> None:
        self._pool = pool
        self._refused = refused
        pool.connect(self)

    def connection_ready(self, connection: ReplicaConnection) -> None:
        self._pool.is_checked = False
        connection.pool.release(connection)

    def connection_refused(self, pool: ConnectionPool) -> None:
        self._pool.is_checked = False
        self._refused(self._pool)

    def answer_begins(self, head: AnswerHead, payload: bytes, *, is_done: bool) -> None:
        """Nothing was sent, so there is no answer."""

    def answer_continues(self, payload: bytes, *, is_done: bool) -> None:
        """Nothing was sent, so there is no answer."""

    def answer_closed(self) -> None:
        """Nothing was sent, so there is no answer."""

    def answer_lost(self, kind: LossKind, message: str) -> None:
        """Nothing was sent, so there is no answer."""
