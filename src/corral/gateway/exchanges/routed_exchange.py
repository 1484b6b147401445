"""Way of a request to a replica of an HTTP service: chosen, connected, or waiting."""

from abc import ABC, abstractmethod
from enum import Enum
from math import inf
from typing import Final

from corral.gateway.access.callers import GatewayCaller
from corral.gateway.framing.answer_framing import AnswerHead
from corral.gateway.framing.answer_text import chunk
from corral.gateway.framing.client_connection import (
    BODY_SILENCE_SECONDS,
    ClientConnection,
)
from corral.gateway.framing.forwarded_heads import ForwardedFrom, forwarded_head
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.openai_errors import GatewayRefusal
from corral.gateway.replicas.replica_connection import (
    ConnectionPool,
    LossKind,
    ReplicaConnection,
)
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.gateway.requests.attempt import ReplicaAttempt
from corral.gateway.requests.routed_request import RelayHost
from corral.gateway.routing.exchange_targets import ExchangeTarget, is_upgrade
from corral.gateway.routing.service_route import WaitingRequest
from corral.route.fair_queue import QueuedItem
from corral.route.least_outstanding import least_outstanding

KEPT_BYTES: Final = 1024 * 1024  # of a body, so that another replica can get it
MOST_ATTEMPTS: Final = 3
ANSWER_SILENCE_SECONDS: Final = 600.0
# methods whose requests may be sent twice (RFC 9110, section 9.2.2)
IDEMPOTENT: Final = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"})


class ExchangePhase(Enum):
    """Phases of a request to an HTTP service."""

    QUEUED = 1
    SENT = 2
    PASSING = 3
    TUNNEL = 4
    ENDED = 5


class RoutedExchange(ABC):
    """One request to an HTTP service, whose body is passed on as it comes. A subclass
    handles the answer.

    Args:
        length: Content-Length of the body; -1 for a chunked one.
    """

    __slots__ = (
        "_attempt",
        "_attempts",
        "_client",
        "_excluded",
        "_from",
        "_gateway",
        "_has_body_begun",
        "_head",
        "_is_body_done",
        "_is_canary",
        "_is_client_slow",
        "_is_replica_slow",
        "_is_upgrade",
        "_kept",
        "_kept_bytes",
        "_last_at",
        "_length",
        "_phase",
        "_queued",
        "request_id",
        "_started",
        "_target",
        "body_limit",
        "caller",
        "deadline",
        "revision",
        "service",
    )

    def __init__(
        self,
        gateway: RelayHost,
        client: ClientConnection,
        target: ExchangeTarget,
        caller: GatewayCaller,
        head: RequestHead,
        length: int,
        request_id: bytes,
    ) -> None:
        self.service = target.service
        self.caller = caller
        self.revision = target.revision
        self.deadline = inf
        self.body_limit = target.service.entry.body_bytes
        self._gateway = gateway
        self._client = client
        self._target = target
        self._head = head
        self._length = length
        self.request_id = request_id
        self._from = ForwardedFrom(
            address=client.address, is_tls=client.is_tls, prefix=target.prefix
        )
        self._is_upgrade = is_upgrade(head)
        self._phase = ExchangePhase.QUEUED
        self._attempt: ReplicaAttempt | None = None
        self._attempts = 0
        self._excluded: tuple[str, ...] = ()
        self._queued: QueuedItem[WaitingRequest] | None = None
        # parts as they are sent; None: too many of them have been sent
        self._kept: list[bytes] | None = []
        self._kept_bytes = 0
        self._is_body_done = not length
        self._has_body_begun = False
        self._is_client_slow = False
        self._is_replica_slow = False
        self._is_canary = False
        self._started = 0.0
        self._last_at = 0.0

    def begin(self) -> None:
        """Send the request to a replica, or let it wait for one."""
        service = self.service
        now = self._gateway.now()
        self._started = now
        self._last_at = now
        self._is_canary = (
            service.has_canary and self.revision is None and service.is_canary_turn()
        )
        service.metrics.in_flight += 1
        service.metrics.arrivals += 1
        service.note_request(now)
        self._gateway.active.add(self)
        self.send_or_wait(now)

    # the choice

    def send_or_wait(self, now: float) -> None:
        """Send the request, or let it wait until a replica can take it."""
        self._queued = None
        pool = self._choose(now)
        if pool is None:
            self._wait(now)
            return
        self._attempt = ReplicaAttempt(pool, 0, now)
        self._phase = ExchangePhase.SENT
        self._set_deadline(now)
        # an idle connection may just be closing: only what may be sent twice goes there
        connection = pool.take_idle() if self._may_repeat else None
        self._connect(connection)

    def _choose(self, now: float) -> ReplicaPool | None:
        service = self.service
        if self._target.replica:
            pool = service.pools.get(self._target.replica)
            is_free = pool is not None and pool.state.ejected_until <= now
            return pool if is_free else None
        for states in service.candidates(self.revision, is_canary=self._is_canary):
            state = least_outstanding(
                states, exclude=self._excluded, tie=service.next_tie(), now=now
            )
            if state is not None:
                return service.pools[state.name]
        return None

    def _wait(self, now: float) -> None:
        self._phase = ExchangePhase.QUEUED
        self._excluded = ()
        self.deadline = inf  # the queue watches over it
        until = self._started + self.service.entry.deadline_seconds
        self._queued = self.service.enqueue(self, 0, self._kept_bytes, now, until)
        if self._queued is None:
            self.refuse_late()

    def refuse_late(self) -> None:
        """Refuse the request, for which no replica has become free."""
        self._queued = None
        self._refuse(self.service.busy_refusal())

    def _leave_queue(self) -> None:
        if self._queued is not None:
            self.service.queue_of(self.revision).remove(self._queued)
            self._queued = None

    @property
    def _may_repeat(self) -> bool:
        """Whether the request may be sent again after a part of it was sent."""
        return self._head.method in IDEMPOTENT and self._kept is not None

    @property
    def _can_go_elsewhere(self) -> bool:
        return self._kept is not None and self._attempts < MOST_ATTEMPTS

    # the request

    def _connect(self, connection: ReplicaConnection | None) -> None:
        assert self._attempt is not None
        if connection is None:
            self._attempt.pool.connect(self)
        else:
            self.connection_ready(connection)

    def connection_ready(self, connection: ReplicaConnection) -> None:
        attempt = self._attempt
        if (
            self._phase is not ExchangePhase.SENT
            or attempt is None
            or not attempt.expects(connection.pool)
        ):
            connection.pool.release(connection)
            return
        attempt.connection = connection
        connection.sender = self
        connection.is_head_only = self._head.method == b"HEAD"
        connection.accepts_upgrade = self._is_upgrade
        connection.is_sending = not self._is_body_done
        head = forwarded_head(
            self._head,
            self._target.target,
            attempt.pool.entry,
            self._from,
            self.request_id,
            self._length,
            is_upgrade=self._is_upgrade,
        )
        # sending may at once report that the replica is slow
        self._is_replica_slow = False
        self._client.resume_reading()
        connection.send(self, b"".join([head, *(self._kept or ())]))
        if not self._may_repeat:
            self._kept = None
        if self._is_client_slow:
            connection.pause()

    def connection_refused(self, pool: ConnectionPool) -> None:
        attempt = self._attempt
        if attempt is not None and attempt.expects(pool):
            self._lose(LossKind.REFUSED, "the replica cannot be reached")

    def body_part(self, payload: bytes, *, is_done: bool) -> None:
        """Take the next part of the body, or of what a tunnel carries."""
        if self._phase is ExchangePhase.ENDED:
            return
        self._last_at = self._gateway.now()
        connection = None if self._attempt is None else self._attempt.connection
        if self._phase is ExchangePhase.TUNNEL:
            if connection is not None:
                connection.send_part(payload, is_last=False)
            return
        self._is_body_done = is_done
        data = chunk(payload, is_last=is_done) if self._length < 0 else payload
        self._keep(data)
        if connection is None:
            self._client.pause_reading()
        else:
            connection.send_part(data, is_last=is_done)
        if self.deadline != inf:
            self._set_deadline(self._last_at)

    def _keep(self, data: bytes) -> None:
        """Keep a part of the body for another replica, as far as they are small."""
        if self._kept is None:
            return
        self._kept_bytes += len(data)
        is_sent = self._attempt is not None and self._attempt.connection is not None
        if is_sent and self._kept_bytes > KEPT_BYTES:
            self._kept = None
        else:
            self._kept.append(data)

    def pause_sending(self) -> None:
        """Read no more of the body: the replica reads too slowly."""
        self._is_replica_slow = True
        self._client.pause_reading()

    def resume_sending(self) -> None:
        self._is_replica_slow = False
        self._client.resume_reading()

    # deadlines

    def _set_deadline(self, now: float) -> None:
        """Set the time until which the next part of the request or answer must come."""
        if self._phase is ExchangePhase.TUNNEL:
            self.deadline = inf
        elif self._phase is ExchangePhase.PASSING:
            self.deadline = now + ANSWER_SILENCE_SECONDS
        elif self._waits_for_client:
            self.deadline = now + BODY_SILENCE_SECONDS
        else:
            self.deadline = now + self.service.entry.deadline_seconds

    @property
    def _waits_for_client(self) -> bool:
        return not self._is_body_done and not self._is_replica_slow

    @abstractmethod
    def answer_begins(self, head: AnswerHead, payload: bytes, *, is_done: bool) -> None:
        """Take the head of an answer, and the payload that came with it."""

    @abstractmethod
    def answer_continues(self, payload: bytes, *, is_done: bool) -> None:
        """Take the next part of the body, or of what a tunnel carries."""

    @abstractmethod
    def answer_closed(self) -> None:
        """Take the end of an answer that ends when the replica closes."""

    @abstractmethod
    def answer_lost(self, kind: LossKind, message: str) -> None:
        """Take note that no more of the answer comes."""

    @abstractmethod
    def _lose(self, kind: LossKind, message: str) -> None:
        """Go on after a lost attempt: at another replica, or with an error."""

    @abstractmethod
    def _refuse(self, refusal: GatewayRefusal) -> None:
        """End the request with a refusal."""

    @abstractmethod
    def expire(self, now: float) -> None:
        """Handle a deadline that has passed."""

    @abstractmethod
    def revoke(self) -> None:
        """End the request of a caller who may no longer send it."""
