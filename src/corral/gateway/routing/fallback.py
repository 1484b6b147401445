"""Fallback of a service: connections to another provider, and the requests it gets."""

import asyncio
import logging
import ssl
from typing import Final

from corral.gateway.counting.gateway_metrics import ReplicaCounters
from corral.gateway.framing.answer_framing import AnswerHeads
from corral.gateway.framing.request_body import body_with_model
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.replicas.replica_connection import AnswerReceiver, ReplicaConnection
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.route.choice import ReplicaState
from corral.wire.fallback_target import FallbackTarget, first_forbidden
from corral.wire.gateway_routes import FallbackEntry, ReplicaEntry

log = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 10.0
NAME: Final = "fallback"
MARK: Final = b"x-corral-fallback: true\r\n"
# only JSON: the name of the model is replaced
PATHS: Final = frozenset(
    {
        b"/v1/chat/completions",
        b"/v1/completions",
        b"/v1/responses",
        b"/v1/embeddings",
    }
)


class FallbackPool(ReplicaPool):
    """Connections to another provider. Its address is checked at each connection, so
    that a name cannot lead into the cluster's own network later."""

    __slots__ = ("_context", "_target", "fallback")

    def __init__(
        self, fallback: FallbackEntry, heads: AnswerHeads, counters: ReplicaCounters
    ) -> None:
        self.fallback = fallback
        self._target = FallbackTarget.of(fallback.url)
        self._context: ssl.SSLContext | None = None
        entry = ReplicaEntry(
            name=NAME, host=self._target.host, port=self._target.port, key=fallback.key
        )
        super().__init__(entry, ReplicaState(NAME), heads, counters)

    def takes(self, path: bytes, now: float) -> bool:
        """Return whether a request to this path may be sent there now."""
        return path in PATHS and self.state.ejected_until <= now

    def head_of(self, head: RequestHead) -> RequestHead:
        """Return the head of the request that stands for a client's."""
        path = self._target.path_of(head.path.decode("ascii"))
        other = RequestHead(head.method, path.encode("ascii"))
        other.content_type = head.content_type
        other.accept = head.accept
        return other

    def body_of(self, body: bytes) -> bytes:
        """Return the body of the request, for the provider's model."""
        return body_with_model(body, self.fallback.model)

    async def _connect(self, receiver: AnswerReceiver) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await self._open()
        except OSError as error:  # also those of TLS, and a TimeoutError
            log.warning("the fallback %s: %s", self._target.authority, error)
            receiver.connection_refused(self)
            return
        receiver.connection_ready(connection)

    async def _open(self) -> ReplicaConnection:
        """Return a connection to an address that is allowed. Raises: OSError."""
        loop = asyncio.get_running_loop()
        target = self._target
        rows = await loop.getaddrinfo(target.host, target.port, type=1)
        addresses = [str(row[4][0]) for row in rows]
        if not self.fallback.private_ok:
            forbidden = first_forbidden(addresses)
            if forbidden is not None or not target.is_tls:
                raise OSError(f"{forbidden or target.url} is not a public address")
        if target.is_tls and self._context is None:
            self._context = await asyncio.to_thread(ssl.create_default_context)
        failure = OSError(f"{target.host} has no address")
        for address in addresses:
            try:
                _, connection = await loop.create_connection(
                    lambda: ReplicaConnection(self, self._heads),
                    address,
                    target.port,
                    ssl=self._context,
                    server_hostname=target.host if target.is_tls else None,
                )
            except OSError as error:
                failure = error
            else:
                return connection
        raise failure

    def _prefix(self, head: RequestHead) -> bytes:
        lines = [
            b"%b %b HTTP/1.1" % (head.method, head.path),
            f"Host: {self._target.authority}".encode(),
            b"Content-Type: " + head.content_type,
            b"Accept: " + head.accept,
            b"Accept-Encoding: identity",
        ]
        if self.entry.key is not None:
            lines.append(b"Authorization: Bearer " + self.entry.key.encode())
        lines.append(b"Content-Length: ")
        return b"\r\n".join(lines)
