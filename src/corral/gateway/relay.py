"""Life of one request: sent to a replica, sent again where that is safe, answered."""

from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Final, Protocol

from corral.gateway.answer_framing import AnswerHead
from corral.gateway.answer_text import chunk, open_answer, whole_answer
from corral.gateway.attempt import ReplicaAttempt, refusal_of_loss, unfit_answer
from corral.gateway.callers import GatewayCaller
from corral.gateway.client_connection import ClientConnection
from corral.gateway.event_stream import EventStream, lost_event
from corral.gateway.openai_errors import GatewayRefusal, render_refusal
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
from corral.gateway.token_counts import read_usage
from corral.route.choice import pick
from corral.route.fair_queue import QueuedItem
from corral.route.prompt_index import BLOCK_BYTES, block_hashes

BYTES_PER_TOKEN: Final = 4
TOKENS_PER_BLOCK: Final = BLOCK_BYTES / BYTES_PER_TOKEN
REPLAYED_BYTES: Final = 8 * 1024 * 1024
# an answer that is not a stream is held up to this size: until then it can be replayed
HELD_ANSWER_BYTES: Final = 64 * 1024
TAIL_BYTES: Final = 2048
MOST_ATTEMPTS: Final = 3
CLIENT_GONE_STATUS: Final = 499


class _Phase(Enum):
    QUEUED = 1
    SENT = 2
    HELD = 3  # the answer has begun, and nothing of it was passed on
    PASSING = 4
    ENDED = 5


class RelayHost(Protocol):
    """Parts of the gateway process that a request needs."""

    now: Callable[[], float]
    active: "set[RelayedRequest]"
    is_draining: bool


class RelayedRequest:
    """One request on its way through the gateway."""

    __slots__ = (
        "_admitted_tokens",
        "_attempt",
        "_attempts",
        "_body",
        "_client",
        "_deadline_seconds",
        "_events",
        "_excluded",
        "_fingerprint",
        "_first_answer",
        "_gateway",
        "_hashes",
        "_head",
        "_held",
        "_held_bytes",
        "_is_paused",
        "_last_at",
        "_output_limit",
        "_output_tokens",
        "_phase",
        "_prompt_tokens",
        "_queued",
        "_request_id",
        "_started",
        "_tail",
        "caller",
        "deadline",
        "service",
    )

    def __init__(
        self,
        gateway: RelayHost,
        client: ClientConnection,
        service: ServiceRoute,
        caller: GatewayCaller,
        head: RequestHead,
        body: bytes,
        request_id: bytes,
        admitted_tokens: int,
    ) -> None:
        self.service = service
        self.caller = caller
        self._gateway = gateway
        self._client = client
        self._head = head
        self._body: bytes | None = body
        self._request_id = request_id
        self._admitted_tokens = admitted_tokens
        self._fingerprint = hash(body)
        self._phase = _Phase.QUEUED
        self._queued: QueuedItem[WaitingRequest] | None = None
        self._attempt: ReplicaAttempt | None = None
        self._attempts = 0
        self._excluded: tuple[str, ...] = ()
        self._is_paused = False
        self._events: EventStream | None = None
        self._first_answer: AnswerHead | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._tail = b""

    def begin(self, fields: BodyFields, now: float) -> None:
        """Send the request to a replica, or let it wait for one."""
        service = self.service
        self._started = now
        prompt = fields.prompt_text
        self._prompt_tokens = len(prompt) // BYTES_PER_TOKEN + 1
        self._hashes = block_hashes(prompt) if len(prompt) >= BLOCK_BYTES else []
        self._output_limit = fields.output_limit
        self._output_tokens = service.expected_output.tokens(self._output_limit)
        self._deadline_seconds = service.answer_seconds(
            self._output_limit, is_stream=bool(fields.stream)
        )
        service.metrics.in_flight += 1
        service.note_request(now)
        self._gateway.active.add(self)
        if len(service.queue):
            self._wait(now)
        else:
            self.send_or_wait(now)

    # the way to a replica

    def send_or_wait(self, now: float) -> None:
        """Send the request, or let it wait until a replica can take it."""
        self._queued = None
        if self.service.is_quarantined(self._fingerprint, now):
            self._refuse(REQUEST_QUARANTINED)
        elif not self._try_send(now):
            self._wait(now)

    def _wait(self, now: float) -> None:
        self._phase = _Phase.QUEUED
        self._excluded = ()
        self.deadline = inf  # the queue watches over it
        until = self._started + self.service.entry.deadline_seconds
        size = len(self._body or b"")
        self._queued = self.service.enqueue(self, self._prompt_tokens, size, now, until)
        if self._queued is None:
            self.refuse_late()

    def refuse_late(self) -> None:
        """Refuse the request, for which no replica has become free."""
        self._queued = None
        self._refuse(self.service.busy_refusal())

    def _try_send(self, now: float) -> bool:
        """Send the request to the best replica; False if none can take it now."""
        service = self.service
        choice = pick(
            service.states,
            self._prompt_tokens,
            self._hashes,
            TOKENS_PER_BLOCK,
            self._output_tokens,
            exclude=self._excluded,
            tie=service.next_tie(),
            now=now,
        )
        if choice is None:
            return False
        pool = service.pools[choice.replica.name]
        self._attempt = ReplicaAttempt(pool, choice.new_tokens, now)
        if self._hashes:
            pool.state.index.add(self._hashes)
        self._phase = _Phase.SENT
        self.deadline = now + self._deadline_seconds
        connection = pool.take_idle()
        if connection is None:
            pool.connect(self)
        else:
            self.connection_ready(connection)
        return True

    def connection_ready(self, connection: ReplicaConnection) -> None:
        attempt = self._attempt
        if (
            self._phase is not _Phase.SENT
            or attempt is None
            or not attempt.expects(connection.pool)
        ):
            connection.pool.release(connection)  # the client has left meanwhile
            return
        body = self._body
        assert body is not None
        attempt.connection = connection
        connection.send(self, attempt.pool.request(self._head, self._request_id, body))
        if len(body) > REPLAYED_BYTES:
            self._body = None

    def connection_refused(self, pool: ConnectionPool) -> None:
        attempt = self._attempt
        if attempt is not None and attempt.expects(pool):
            self._lose(LossKind.REFUSED, "the replica cannot be reached")

    # the answer

    def answer_begins(self, head: AnswerHead, payload: bytes, *, is_done: bool) -> None:
        attempt = self._attempt
        assert attempt is not None
        if is_done:
            attempt.connection = None
        if head.status != 200 and self._is_unfit(head, attempt):
            return
        if head.is_encoded:
            attempt.drop_connection()
            self._lose(LossKind.BAD_ANSWER, "the replica sent an encoded answer")
            return
        now = self._gateway.now()
        self._last_at = now
        self._first_answer = head
        self.service.metrics.ttft.observe(now - self._started)
        attempt.note_first_byte()
        if head.status < 500:
            self.service.note_success(attempt.pool, self._fingerprint, now)
        else:
            self.service.note_failure(attempt.pool, LossKind.UNAVAILABLE, now)
        if head.is_event_stream:
            attempt.learn_first_token(self.service, now)
            self._events = EventStream()
            self._begin_passing(head)
            self.answer_continues(payload, is_done=is_done)
        elif is_done:
            self._tail = payload
            self._answer_whole(head, payload)
        else:
            self._phase = _Phase.HELD
            self._hold(head, payload)

    def _is_unfit(self, head: AnswerHead, attempt: ReplicaAttempt) -> bool:
        """Handle an answer that is not passed on; return whether it was one."""
        unfit = unfit_answer(head.status, can_replay=self._can_replay())
        if unfit is None:
            return False
        attempt.drop_connection()
        self._lose(*unfit)
        return True

    def answer_continues(self, payload: bytes, *, is_done: bool) -> None:
        attempt = self._attempt
        head = self._first_answer
        assert attempt is not None
        assert head is not None
        if is_done:
            attempt.connection = None
        if self._events is not None:
            self._pass_events(self._events, attempt, payload, is_done=is_done)
            return
        self._last_at = self._gateway.now()
        self._tail = (self._tail + payload)[-TAIL_BYTES:]
        if self._phase is _Phase.PASSING:
            self._pass(payload, is_done=is_done)
        elif is_done:
            self._held.append(payload)
            self._answer_whole(head, b"".join(self._held))
        else:
            self._hold(head, payload)

    def _hold(self, head: AnswerHead, payload: bytes) -> None:
        self._held.append(payload)
        self._held_bytes += len(payload)
        if self._held_bytes <= HELD_ANSWER_BYTES:
            return
        held = b"".join(self._held)
        self._held = []
        self._begin_passing(head)
        self._pass(held, is_done=False)

    @property
    def _keeps_alive(self) -> bool:
        head = self._head
        return head.keeps_alive and not head.is_http10 and not self._gateway.is_draining

    def _begin_passing(self, head: AnswerHead) -> None:
        self._phase = _Phase.PASSING
        self._body = None
        self._client.write(
            open_answer(
                head,
                self._request_id,
                is_chunked=not self._head.is_http10,
                closes=not self._keeps_alive,
            )
        )

    def _answer_whole(self, head: AnswerHead, body: bytes) -> None:
        closes = not self._keeps_alive
        self._client.write(whole_answer(head, self._request_id, body, closes=closes))
        self._end(head.status)

    def _pass_events(
        self,
        events: EventStream,
        attempt: ReplicaAttempt,
        payload: bytes,
        *,
        is_done: bool,
    ) -> None:
        data = events.feed(payload)
        if data:
            now = self._gateway.now()
            if events.events > 1:
                self.service.metrics.itl.observe(now - self._last_at)
                attempt.learn_itl(events.events, now)
            self._last_at = now
        if is_done:
            data += events.flush()
        if data or is_done:
            self._pass(data, is_done=is_done)

    def _pass(self, payload: bytes, *, is_done: bool) -> None:
        is_chunked = not self._head.is_http10
        self._client.write(chunk(payload, is_last=is_done) if is_chunked else payload)
        if is_done:
            assert self._first_answer is not None
            self._end(self._first_answer.status)

    # losses

    def answer_lost(self, kind: LossKind, message: str) -> None:
        attempt = self._attempt
        assert attempt is not None
        connection = attempt.connection
        attempt.connection = None
        if (
            kind is LossKind.CLOSED
            and self._phase is _Phase.SENT
            and connection is not None
            and connection.is_reused
            and self._body is not None
        ):
            # the replica may only have closed an idle connection
            attempt.pool.note_loss(self._fingerprint, self._gateway.now())
            attempt.pool.connect(self)
            return
        self._lose(kind, message)

    def _can_replay(self) -> bool:
        return (
            self._body is not None
            and self._phase in (_Phase.SENT, _Phase.HELD)
            and self._attempts + 1 < MOST_ATTEMPTS
        )

    def _lose(self, kind: LossKind, message: str) -> None:
        """Go on after a lost attempt: at another replica, or with an error."""
        now = self._gateway.now()
        attempt = self._attempt
        assert attempt is not None
        pool = attempt.pool
        if kind is LossKind.CLOSED:
            pool.note_loss(self._fingerprint, now)
            self.service.check_alive(pool, self._gateway.now)
        self.service.note_failure(pool, kind, now)
        if self._phase is _Phase.PASSING:
            self._end_cut_answer(message)
            return
        may_replay = self._can_replay()
        attempt.leave()
        self._attempt = None
        self._held = []
        self._held_bytes = 0
        self._tail = b""
        if kind is not LossKind.REFUSED:  # such a replica is ejected
            self._attempts += 1
        if not may_replay or not self.service.take_retry(kind, now):
            self._refuse(refusal_of_loss(kind, message))
            return
        self._excluded = (*self._excluded, pool.state.name)
        self.send_or_wait(now)

    def _end_cut_answer(self, message: str) -> None:
        """End an answer whose beginning has been passed on."""
        events = self._events
        self.service.metrics.streams_lost += 1
        if events is not None and events.is_done:
            self._pass(b"", is_done=True)
        elif events is not None and events.can_be_ended:
            event = lost_event(self._head.path, events.tokens, message)
            self._pass(event, is_done=True)
        else:
            # without its last chunk, the client sees that the answer is cut
            self._end(502, keeps_alive=False)

    def expire(self, now: float) -> None:
        """Handle a deadline that has passed."""
        attempt = self._attempt
        assert attempt is not None
        if self._phase is _Phase.SENT:
            if now - self._started >= 2 * self._deadline_seconds:
                self._attempts = MOST_ATTEMPTS
            attempt.drop_connection()
            self._lose(LossKind.NO_FIRST_BYTE, "no answer came within the deadline")
            return
        silent = 0.0 if self._is_paused else now - self._last_at
        self.deadline = now - silent + self._deadline_seconds
        if self.deadline <= now:
            attempt.drop_connection()
            self._lose(LossKind.CLOSED, "the replica's answer stopped")

    # back-pressure, and the end

    def pause(self) -> None:
        """Stop reading the answer: the client reads too slowly."""
        self._is_paused = True
        if self._attempt is not None and self._attempt.connection is not None:
            self._attempt.connection.pause()

    def resume(self) -> None:
        self._is_paused = False
        self._last_at = self._gateway.now()
        if self._attempt is not None and self._attempt.connection is not None:
            self._attempt.connection.resume()

    def client_gone(self) -> None:
        """End the work at the replica: the client has left."""
        if self._phase is _Phase.ENDED:
            return
        self.service.metrics.client_gone += 1
        if self._queued is not None:
            self.service.queue.remove(self._queued)
            self._queued = None
        if self._attempt is not None:
            self._attempt.drop_connection()
        self._finish(CLIENT_GONE_STATUS)

    def _refuse(self, refusal: GatewayRefusal) -> None:
        closes = not self._keeps_alive
        self._client.write(
            render_refusal(refusal, closes=closes, request_id=self._request_id)
        )
        self._end(refusal.status)

    def _end(self, status: int, *, keeps_alive: bool = True) -> None:
        client = self._client
        keeps_alive = keeps_alive and self._keeps_alive
        self._finish(status)
        client.request_done(keeps_alive=keeps_alive)

    def _finish(self, status: int) -> None:
        """Release what the request holds, and count it."""
        gateway = self._gateway
        service = self.service
        now = gateway.now()
        tokens = 0
        attempt = self._attempt
        self._attempt = None
        if attempt is not None:
            if attempt.is_answered:
                tokens = self._count_tokens(attempt, now)
            attempt.leave()
        self._phase = _Phase.ENDED
        self._body = None
        gateway.active.discard(self)
        metrics = service.metrics
        metrics.in_flight -= 1
        metrics.requests[status] = metrics.requests.get(status, 0) + 1
        metrics.request_seconds.observe(now - self._started)
        if self.caller.limits is not None:
            self.caller.limits.finish(tokens, self._admitted_tokens)
        if len(service.queue):
            service.send_waiting(now)

    def _count_tokens(self, attempt: ReplicaAttempt, now: float) -> int:
        """Count tokens as the engine reports them; return those of the request."""
        events = self._events
        usage = read_usage(self._tail if events is None else events.tail)
        if usage is None:
            output = 0 if events is None else events.tokens
            self.service.metrics.output_tokens += output
            return self._prompt_tokens + output
        self.service.note_usage(usage, self._output_limit)
        if events is None:
            attempt.learn_whole(self.service, usage.output, now)
        attempt.learn_cached(self._hashes, usage)
        return usage.prompt + usage.output
