"""Way of a request to a replica: chosen, sent, or waiting for one."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Final, Protocol

from corral.gateway.answer_framing import AnswerHead
from corral.gateway.attempt import ReplicaAttempt
from corral.gateway.callers import GatewayCaller
from corral.gateway.continuation_requests import continued_head
from corral.gateway.openai_errors import GatewayRefusal
from corral.gateway.replica_connection import (
    ConnectionPool,
    LossKind,
    ReplicaConnection,
)
from corral.gateway.request_body import BodyFields
from corral.gateway.request_head import RequestHead
from corral.gateway.service_route import (
    REQUEST_QUARANTINED,
    ServiceRoute,
    WaitingRequest,
)
from corral.gateway.stream_continuation import StreamContinuation
from corral.route.choice import pick
from corral.route.fair_queue import QueuedItem
from corral.route.prompt_index import BLOCK_BYTES, block_hashes

BYTES_PER_TOKEN: Final = 4
TOKENS_PER_BLOCK: Final = BLOCK_BYTES / BYTES_PER_TOKEN
REPLAYED_BYTES: Final = 8 * 1024 * 1024


class RequestPhase(Enum):
    """Phases of a request in the gateway."""

    QUEUED = 1
    SENT = 2
    HELD = 3  # the answer has begun, and nothing of it was passed on
    PASSING = 4
    ENDED = 5


class RelayHost(Protocol):
    """Parts of the gateway process that a request needs."""

    now: Callable[[], float]
    active: "set[RoutedRequest]"
    is_draining: bool


class RoutedRequest(ABC):
    """One request on its way to a replica. A subclass handles the answer.

    Args:
        body: Whole body of the request.
        revision: Revision that the client has named; None: any.
    """

    __slots__ = (
        "_attempt",
        "_body",
        "_continuation",
        "_deadline_seconds",
        "_excluded",
        "_fingerprint",
        "_gateway",
        "_has_left_early",
        "_hashes",
        "_head",
        "_is_canary",
        "_is_moved",
        "_is_paused",
        "_is_stream",
        "_output_limit",
        "_output_tokens",
        "_phase",
        "_prompt_tokens",
        "_queued",
        "_request_id",
        "_since",
        "_started",
        "_upstream_head",
        "caller",
        "deadline",
        "revision",
        "service",
    )

    def __init__(
        self,
        gateway: RelayHost,
        service: ServiceRoute,
        caller: GatewayCaller,
        head: RequestHead,
        body: bytes,
        request_id: bytes,
        revision: int | None,
    ) -> None:
        self.service = service
        self.caller = caller
        self.revision = revision
        self.deadline = inf
        self._gateway = gateway
        self._head = head
        self._upstream_head = head
        self._body: bytes | None = body
        self._request_id = request_id
        self._fingerprint = hash(body)
        self._phase = RequestPhase.QUEUED
        self._queued: QueuedItem[WaitingRequest] | None = None
        self._attempt: ReplicaAttempt | None = None
        self._continuation: StreamContinuation | None = None
        self._excluded: tuple[str, ...] = ()
        self._is_paused = False
        self._is_moved = False
        self._has_left_early = False

    def begin(self, fields: BodyFields, now: float) -> None:
        """Send the request to a replica, or let it wait for one."""
        service = self.service
        self._started = now
        self._since = now
        prompt = fields.prompt_text
        self._prompt_tokens = len(prompt) // BYTES_PER_TOKEN + 1
        self._hashes = block_hashes(prompt) if len(prompt) >= BLOCK_BYTES else []
        self._output_limit = fields.output_limit
        self._output_tokens = service.expected_output.tokens(self._output_limit)
        self._is_stream = bool(fields.stream)
        self._is_canary = (
            service.has_canary and self.revision is None and service.is_canary_turn()
        )
        self._deadline_seconds = service.answer_seconds(
            self._output_limit, is_stream=self._is_stream
        )
        if self._is_stream and service.entry.continues != "none":
            self._begin_continuation(service.entry.continues)
        service.metrics.in_flight += 1
        service.metrics.arrivals += 1
        service.note_request(now)
        self._gateway.active.add(self)
        queue = service.queue
        if self.revision is not None:
            queue = service.queue_of(self.revision)
        if len(queue):
            self._wait(now)
        else:
            self.send_or_wait(now)

    def _begin_continuation(self, kind: str) -> None:
        assert self._body is not None
        self._continuation = StreamContinuation.begin(
            kind, self._head.path, self._body, self._request_id.decode()
        )
        if self._continuation is not None:
            self._write_upstream(self._continuation)

    def _write_upstream(self, continuation: StreamContinuation) -> None:
        """Take the request that the stream's continuation needs next."""
        self._body = continuation.body
        self._upstream_head = continued_head(continuation.path, self._head)

    def send_or_wait(self, now: float) -> None:
        """Send the request, or let it wait until a replica can take it."""
        self._queued = None
        if self.service.is_quarantined(self._fingerprint, now):
            self._refuse(REQUEST_QUARANTINED)
        elif not self._try_send(now):
            self._wait(now)

    def _wait(self, now: float) -> None:
        self._phase = RequestPhase.QUEUED
        self._excluded = ()
        self.deadline = inf  # the queue watches over it
        until = self._since + self.service.entry.deadline_seconds
        size = len(self._body or b"")
        self._queued = self.service.enqueue(self, self._prompt_tokens, size, now, until)
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

    def _try_send(self, now: float) -> bool:
        """Send the request to the best replica; False if none can take it now."""
        service = self.service
        choices = service.usual_choices
        if self._is_canary or self.revision is not None:
            choices = service.candidates(self.revision, is_canary=self._is_canary)
        for states in choices:
            choice = pick(
                states,
                self._prompt_tokens,
                self._hashes,
                TOKENS_PER_BLOCK,
                self._output_tokens,
                exclude=self._excluded,
                tie=service.next_tie(),
                now=now,
            )
            if choice is not None:
                break
        else:
            return False
        pool = service.pools[choice.replica.name]
        self._attempt = ReplicaAttempt(pool, choice.new_tokens, now)
        if self._hashes:
            pool.state.index.add(self._hashes)
        self._phase = RequestPhase.SENT
        seconds = self._deadline_seconds
        if self._is_stream and not self._has_left_early:
            late = service.late_seconds(pool)
            if late is not None and late < seconds:
                seconds = late
        self.deadline = now + seconds
        connection = pool.take_idle()
        if connection is None:
            pool.connect(self)
        else:
            self.connection_ready(connection)
        return True

    def _connect(self, connection: ReplicaConnection | None) -> None:
        assert self._attempt is not None
        if connection is None:
            self._attempt.pool.connect(self)
        else:
            self.connection_ready(connection)

    def connection_ready(self, connection: ReplicaConnection) -> None:
        attempt = self._attempt
        if (
            self._phase is not RequestPhase.SENT
            or attempt is None
            or not attempt.expects(connection.pool)
        ):
            connection.pool.release(connection)  # the client has left meanwhile
            return
        body = self._body
        assert body is not None
        attempt.connection = connection
        request = attempt.pool.request(self._upstream_head, self._request_id, body)
        connection.send(self, request)
        if self._is_paused:
            connection.pause()
        if len(body) > REPLAYED_BYTES:
            self._body = None

    def connection_refused(self, pool: ConnectionPool) -> None:
        attempt = self._attempt
        if attempt is not None and attempt.expects(pool):
            self._lose(LossKind.REFUSED, "the replica cannot be reached")

    @abstractmethod
    def answer_begins(self, head: AnswerHead, payload: bytes, *, is_done: bool) -> None:
        """Take the head of an answer, and the payload that came with it."""

    @abstractmethod
    def answer_continues(self, payload: bytes, *, is_done: bool) -> None:
        """Take the next part of the body."""

    @abstractmethod
    def answer_closed(self) -> None:
        """Take the end of an answer that ends when the replica closes."""

    @abstractmethod
    def answer_lost(self, kind: LossKind, message: str) -> None:
        """Take note that no more of the answer comes."""

    @abstractmethod
    def expire(self, now: float) -> None:
        """Handle a deadline that has passed."""

    @abstractmethod
    def revoke(self) -> None:
        """End the request of a caller who may no longer send it."""

    @abstractmethod
    def _refuse(self, refusal: GatewayRefusal) -> None:
        """End the request with a refusal."""

    @abstractmethod
    def _lose(self, kind: LossKind, message: str, *, has_retry: bool = False) -> None:
        """Go on after a lost attempt: at another replica, or with an error.

        Args:
            has_retry: Whether a retry was already taken from the budget.
        """
