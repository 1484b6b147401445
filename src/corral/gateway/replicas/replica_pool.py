"""Replicas as the gateway holds them: address, key, state, and open connections."""

import asyncio
import logging
from typing import Final

from corral.gateway.counting.gateway_metrics import ReplicaCounters
from corral.gateway.framing.answer_framing import AnswerHeads
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.replicas.replica_connection import AnswerReceiver, ReplicaConnection
from corral.route.choice import ReplicaState
from corral.wire.gateway_routes import ReplicaEntry

log = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 3.0
# uvicorn closes idle connections after 5 s: close them first
IDLE_SECONDS: Final = 4.0
MOST_IDLE: Final = 256
CACHED_PREFIXES: Final = 64
LOSS_SECONDS: Final = 5.0
MOST_LOSSES: Final = 4096


class ReplicaPool:
    """One replica: its state for choices, and connections to it."""

    __slots__ = (
        "_connecting",
        "_heads",
        "_idle",
        "_losses",
        "_prefixes",
        "counters",
        "entry",
        "is_checked",
        "is_listed",
        "state",
    )

    def __init__(
        self,
        entry: ReplicaEntry,
        state: ReplicaState,
        heads: AnswerHeads,
        counters: ReplicaCounters,
    ) -> None:
        self.entry = entry
        self.counters = counters
        self.state = state
        self.is_listed = True
        self.is_checked = False
        self._heads = heads
        self._idle: list[ReplicaConnection] = []
        self._losses: list[tuple[int, float]] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._prefixes: dict[tuple[bytes, bytes, bytes, bytes], bytes] = {}

    @property
    def is_prefill(self) -> bool:
        """Whether the replica only computes prompts."""
        return self.entry.role == "prefill"

    def take_idle(self) -> ReplicaConnection | None:
        """Return an open connection without a request; None if all are used."""
        return self._idle.pop() if self._idle else None

    def release(self, connection: ReplicaConnection) -> None:
        """Keep a connection whose answer has ended."""
        if not self.is_listed or len(self._idle) >= MOST_IDLE:
            connection.abandon()
            return
        connection.is_reused = True
        connection.idle_since = 0.0
        self._idle.append(connection)

    def forget(self, connection: ReplicaConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def note_loss(self, fingerprint: int, now: float) -> None:
        """Remember a request whose answer was cut; the replica may have died of it."""
        if len(self._losses) < MOST_LOSSES:
            self._losses.append((fingerprint, now))

    def take_losses(self, now: float) -> list[int]:
        """Return the requests that were just cut, once."""
        losses = self._losses
        self._losses = []
        return [fingerprint for fingerprint, at in losses if now - at < LOSS_SECONDS]

    def connect(self, receiver: AnswerReceiver) -> None:
        """Open a connection for the receiver."""
        task = asyncio.get_running_loop().create_task(self._connect(receiver))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, receiver: AnswerReceiver) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: ReplicaConnection(self, self._heads),
                    self.entry.host,
                    self.entry.port,
                )
        except OSError as error:  # a TimeoutError is one
            log.debug("replica %s: %s", self.entry.name, error)
            receiver.connection_refused(self)
            return
        receiver.connection_ready(connection)

    def unlist(self) -> None:
        """Take no more requests; those under way go on."""
        self.is_listed = False
        self.close_idle(0.0)

    def close_idle(self, now: float) -> None:
        """Close connections that have been idle for IDLE_SECONDS."""
        remaining: list[ReplicaConnection] = []
        for connection in self._idle:
            if not connection.idle_since:
                connection.idle_since = now
            if self.is_listed and now - connection.idle_since < IDLE_SECONDS:
                remaining.append(connection)
            else:
                connection.abandon()
        self._idle = remaining

    def request(self, head: RequestHead, request_id: bytes, body: bytes) -> bytes:
        """Return the bytes of a request to this replica, written from its fields."""
        shape = (head.method, head.path, head.content_type, head.accept)
        prefix = self._prefixes.get(shape)
        if prefix is None:
            prefix = self._prefix(head)
            if len(self._prefixes) >= CACHED_PREFIXES:
                self._prefixes.clear()
            self._prefixes[shape] = prefix
        if head.traceparent:
            return b"%b%d\r\nx-request-id: %b\r\ntraceparent: %b\r\n\r\n%b" % (
                prefix,
                len(body),
                request_id,
                head.traceparent,
                body,
            )
        return b"%b%d\r\nx-request-id: %b\r\n\r\n%b" % (
            prefix,
            len(body),
            request_id,
            body,
        )

    def _prefix(self, head: RequestHead) -> bytes:
        host = self.entry.host
        address = f"[{host}]" if ":" in host else host
        lines = [
            b"%b %b HTTP/1.1" % (head.method, head.path),
            f"Host: {address}:{self.entry.port}".encode(),
            b"Content-Type: " + head.content_type,
            b"Accept: " + head.accept,
        ]
        if self.entry.key is not None:
            lines.append(b"Authorization: Bearer " + self.entry.key.encode())
        lines.append(b"Content-Length: ")
        return b"\r\n".join(lines)
