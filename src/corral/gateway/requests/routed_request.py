"""Way of a request to a replica: chosen, sent, or waiting for one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from math import inf
from typing import Final, Protocol

from corral.gateway.access.budgets import BudgetCharge
from corral.gateway.access.callers import GatewayCaller
from corral.gateway.continuation.continuation_requests import continued_head
from corral.gateway.continuation.stream_continuation import StreamContinuation
from corral.gateway.framing.answer_framing import AnswerHead
from corral.gateway.framing.request_body import BodyFields
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.openai_errors import GatewayRefusal
from corral.gateway.replicas.replica_connection import (
    ConnectionPool,
    LossKind,
    ReplicaConnection,
)
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.gateway.requests.attempt import ReplicaAttempt
from corral.gateway.requests.slow_attempt import SlowAttempt
from corral.gateway.routing.response_places import state_of_place
from corral.gateway.routing.service_route import (
    REQUEST_QUARANTINED,
    ServiceRoute,
    WaitingRequest,
)
from corral.gateway.routing.stored_responses import response_not_found
from corral.route.choice import ReplicaChoice, pick
from corral.route.fair_queue import QueuedItem
from corral.route.prompt_index import (
    BLOCK_BYTES,
    block_hashes,
    hashes_with_adapter,
)

BYTES_PER_TOKEN: Final = 4
TOKENS_PER_BLOCK: Final = BLOCK_BYTES / BYTES_PER_TOKEN
REPLAYED_BYTES: Final = 8 * 1024 * 1024
# after a connection to the fallback has failed
FALLBACK_PAUSE_SECONDS: Final = 5.0


class RequestPhase(Enum):
    """Phases of a request in the gateway."""

    QUEUED = 1
    SENT = 2
    HELD = 3  # the answer has begun, and nothing of it was passed on
    PASSING = 4
    ENDED = 5


class ActiveRequest(Protocol):
    """A request under way, whose deadline and caller are watched."""

    caller: GatewayCaller
    service: ServiceRoute
    deadline: float

    def expire(self, now: float) -> None:
        """Handle a deadline that has passed."""

    def revoke(self) -> None:
        """End the request of a caller who may no longer send it."""


class RelayHost(Protocol):
    """Parts of the gateway process that a request needs."""

    now: Callable[[], float]
    active: set[ActiveRequest]
    is_draining: bool


class RoutedRequest(ABC):
    """One request on its way to a replica. A subclass handles the answer.

    Args:
        body: Whole body of the request.
        revision: Revision that the client has named; None: any.

    Attributes:
        adapter: Adapter that the client has named; None: the model itself.
        charge: Tokens that the request has reserved in budgets; None without one.
    """

    __slots__ = (
        "_attempt",
        "_body",
        "_client_body",
        "_continuation",
        "_deadline_seconds",
        "_excluded",
        "_gateway",
        "_has_left_early",
        "_has_missed_adapter",
        "_hashes",
        "_head",
        "_is_canary",
        "_is_at_fallback",
        "_is_moved",
        "_is_paused",
        "_is_stream",
        "_output_limit",
        "_output_tokens",
        "_phase",
        "_place",
        "_previous_response",
        "_prompt_tokens",
        "_queued",
        "_request_id",
        "_since",
        "_slow",
        "_started",
        "_upstream_head",
        "adapter",
        "charge",
        "caller",
        "deadline",
        "fingerprint",
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
        self.fingerprint = hash(body)
        self._phase = RequestPhase.QUEUED
        self._queued: QueuedItem[WaitingRequest] | None = None
        self._attempt: ReplicaAttempt | None = None
        self._slow: SlowAttempt | None = None
        self._continuation: StreamContinuation | None = None
        self._excluded: tuple[str, ...] = ()
        self._is_paused = False
        self._is_moved = False
        self._has_left_early = False
        self.adapter: str | None = None
        self.charge: BudgetCharge | None = None
        self._has_missed_adapter = False
        self._is_at_fallback = False
        # for the fallback, which gets the request as the client wrote it
        self._client_body = body if service.fallback is not None else None

    def is_at(self, pool: ReplicaPool) -> bool:
        """Return whether the request has been sent to this replica."""
        attempt = self._attempt
        return (
            attempt is not None
            and attempt.pool is pool
            and attempt.connection is not None
        )

    def begin(self, fields: BodyFields, now: float) -> None:
        """Send the request to a replica, or let it wait for one."""
        service = self.service
        self._started = now
        self._since = now
        prompt = fields.prompt_text
        self._prompt_tokens = len(prompt) // BYTES_PER_TOKEN + 1
        self._hashes = block_hashes(prompt) if len(prompt) >= BLOCK_BYTES else []
        if self.adapter is not None:
            self._hashes = hashes_with_adapter(self._hashes, self.adapter)
        elif self._hashes and self._body is not None:
            service.affinity.note_prompt(
                self._head.path, self._body, len(prompt), self._hashes, now
            )
        self._output_limit = fields.output_limit
        self._output_tokens = service.expected_output.tokens(self._output_limit)
        self._is_stream = bool(fields.stream)
        self._previous_response = fields.previous_response_id
        self._place: str | None = None
        if self._previous_response is not None:
            self._place = service.responses.find(
                self._previous_response, self.caller.owner
            )
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
        if self.caller.is_batch:
            service.metrics.batch_in_flight += 1
            service.metrics.batch_arrivals += 1
        service.note_request(now)
        self._gateway.active.add(self)
        if len(service.queue_of(self.revision, self.adapter)):
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
        refusal = self._present_refusal(now)
        if refusal is not None:
            self._refuse(refusal)
        elif not self._try_send(now) and (
            self.service.has_ready_replica(now) or not self._use_fallback(now)
        ):
            self._wait(now)

    def _present_refusal(self, now: float) -> GatewayRefusal | None:
        """Return why the request can be sent to no replica at all."""
        service = self.service
        if service.is_quarantined(self.fingerprint, now):
            return REQUEST_QUARANTINED
        previous = self._previous_response
        if previous and service.responses.is_of_another(previous, self.caller.owner):
            return response_not_found(previous, "previous_response_id")
        if self.adapter is None:
            return None
        states = service.candidates(self.revision, is_canary=False)[0]
        return service.adapters.refusal(self.adapter, states, service.pools, now)

    def _wait(self, now: float) -> None:
        self._phase = RequestPhase.QUEUED
        self._excluded = ()
        self.deadline = inf  # the queue watches over it
        until = self._since + self.service.entry.deadline_seconds
        size = len(self._body or b"")
        self._queued = self.service.enqueue(
            self, self._prompt_tokens, size, now, until, self.adapter
        )
        if self._queued is None:
            self.refuse_late()

    def refuse_late(self) -> None:
        """Send the request, for which no replica has become free, to the fallback, or
        refuse it."""
        self._queued = None
        if not self._use_fallback(self._gateway.now()):
            self._refuse(self.service.busy_refusal())

    def _leave_queue(self) -> None:
        if self._queued is not None:
            self.service.queue_of(self.revision, self.adapter).remove(self._queued)
            self._queued = None

    def _try_send(self, now: float) -> bool:
        """Send the request to the best replica; False if none can take it now."""
        service = self.service
        choices = service.usual_choices
        if self._is_canary or self.revision is not None:
            choices = service.candidates(self.revision, is_canary=self._is_canary)
        prices: Mapping[str, float] | None = None
        if self.adapter is not None:
            prices = service.adapters.prices(self.adapter, service.pools, now)
        if self._place is not None:
            state = state_of_place(choices, self._place, self._excluded, now)
            if state is not None and (prices is None or state.name in prices):
                return self._send_to(
                    ReplicaChoice(state, self._prompt_tokens, 0, 0.0), now
                )
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
                extra_seconds=prices,
            )
            if choice is not None:
                break
        else:
            return False
        return self._send_to(choice, now)

    def _begin_attempt(self, choice: ReplicaChoice, now: float) -> ReplicaAttempt:
        """Take a place at this replica."""
        pool = self.service.pools[choice.replica.name]
        attempt = ReplicaAttempt(pool, choice.new_tokens, now)
        self._attempt = attempt
        if self._hashes:
            pool.state.index.add(self._hashes)
        self._phase = RequestPhase.SENT
        return attempt

    def _send_to(self, choice: ReplicaChoice, now: float) -> bool:
        """Begin an attempt at this replica; return whether it takes the request now."""
        service = self.service
        attempt = self._begin_attempt(choice, now)
        pool = attempt.pool
        if self.adapter is not None:
            attempt.use_adapter(service.adapters, self.adapter)
            if not service.adapters.is_ready(pool, self.adapter):
                self.deadline = now + self._deadline_seconds
                service.adapters.wait_for(pool, self.adapter, self, attempt)
                return True
        self._send(attempt, now)
        return True

    def _send(self, attempt: ReplicaAttempt, now: float) -> None:
        """Send the request on an idle connection or a new one."""
        seconds = self._deadline_seconds
        if self._is_stream and not self._has_left_early and not self._is_at_fallback:
            late = self.service.late_seconds(attempt.pool)
            if late is not None and late < seconds:
                seconds = late
        self.deadline = min(now + seconds, attempt.begun_at + self._deadline_seconds)
        connection = attempt.pool.take_idle()
        if connection is None:
            attempt.pool.connect(self)
        else:
            self.connection_ready(connection)

    # adapters

    def adapter_ready(self, attempt: object) -> None:
        """Send the request: the replica has its adapter now."""
        if self._attempt is not None and self._attempt is attempt:
            now = self._gateway.now()
            self._attempt.restart(now)
            self._send(self._attempt, now)

    def adapter_failed(self, attempt: object) -> None:
        """Go on without the replica, which cannot load the adapter."""
        if self._attempt is not None and self._attempt is attempt:
            self._choose_again(self._attempt)

    def _choose_again(self, attempt: ReplicaAttempt) -> None:
        """Give up an attempt that no fault of a replica has ended, and begin another."""
        attempt.leave()
        self._attempt = None
        self._phase = RequestPhase.QUEUED
        self.send_or_wait(self._gateway.now())

    # the fallback

    def _use_fallback(self, now: float) -> bool:
        """Send the request to the fallback; False if it must not go there. Work in
        batches waits instead, because it is not urgent."""
        fallback = self.service.fallback
        body = self._client_body
        if (
            fallback is None
            or body is None
            or self._is_at_fallback
            or self._slow is not None
            or self._is_moved
            or self.revision is not None
            or self.adapter is not None
            or self._previous_response is not None
            or self.caller.priority == "batch"
            or not fallback.takes(self._head.path, now)
        ):
            return False
        self._is_at_fallback = True
        self._continuation = None
        self._hashes = []
        self._upstream_head = fallback.head_of(self._head)
        self._body = fallback.body_of(body)
        self._attempt = ReplicaAttempt(fallback, self._prompt_tokens, now)
        self._phase = RequestPhase.SENT
        self._send(self._attempt, now)
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
        body = attempt.body or self._body
        assert body is not None
        attempt.connection = connection
        adapters = self.service.adapters
        if adapters.by_name and not self._is_at_fallback:
            body = adapters.body_for(attempt.pool, self.adapter, body)
        request = attempt.pool.request(self._upstream_head, self._request_id, body)
        connection.send(self, request)
        if self._is_paused:
            connection.pause()
        if len(body) > REPLAYED_BYTES:
            self._body = None

    def connection_refused(self, pool: ConnectionPool) -> None:
        attempt = self._attempt
        if attempt is None or not attempt.expects(pool):
            return
        if self._is_at_fallback:
            until = self._gateway.now() + FALLBACK_PAUSE_SECONDS
            attempt.pool.state.ejected_until = until
            self._refuse(self.service.busy_refusal())
            return
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
