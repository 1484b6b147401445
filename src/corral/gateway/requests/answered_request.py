"""Answer of a replica on its way to the client: held while another replica could still
give it, or passed on as it comes."""

from abc import abstractmethod
from typing import Final

from corral.gateway.access.callers import GatewayCaller
from corral.gateway.continuation.stream_continuation import StreamContinuation
from corral.gateway.framing.answer_framing import AnswerHead
from corral.gateway.framing.answer_text import chunk, open_answer, whole_answer
from corral.gateway.framing.client_connection import ClientConnection
from corral.gateway.framing.event_stream import EventStream
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.replicas.replica_connection import LossKind
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.gateway.requests.attempt import (
    ReplicaAttempt,
    RetriedAnswer,
    retried_answer,
    unfit_answer,
)
from corral.gateway.requests.endpoints import RESPONSES_PATH
from corral.gateway.requests.prefilled_request import PrefilledRequest
from corral.gateway.requests.routed_request import RelayHost, RequestPhase
from corral.gateway.routing.fallback import MARK
from corral.gateway.routing.service_route import ServiceRoute

# an answer that is not a stream is held up to this size: until then it can be replayed
HELD_ANSWER_BYTES: Final = 64 * 1024
TAIL_BYTES: Final = 2048
MOST_ATTEMPTS: Final = 3
MOST_PLACES: Final = 16  # at which a response is looked for


class AnsweredRequest(PrefilledRequest):
    """One request and the answer that its client gets. A subclass ends it."""

    __slots__ = (
        "_admitted_tokens",
        "_answered_by",
        "_client",
        "_events",
        "_first_answer",
        "_has_engine_error",
        "_held",
        "_held_bytes",
        "_is_unnoted",
        "_last_at",
        "_looked_elsewhere",
        "_tail",
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
        revision: int | None = None,
    ) -> None:
        super().__init__(gateway, service, caller, head, body, request_id, revision)
        self._client = client
        self._admitted_tokens = admitted_tokens
        self._answered_by: ReplicaPool | None = None
        self._has_engine_error = False
        self._events: EventStream | None = None
        self._first_answer: AnswerHead | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._tail = b""
        self._is_unnoted = head.path == RESPONSES_PATH
        self._looked_elsewhere = 0

    # the answer

    def answer_begins(self, head: AnswerHead, payload: bytes, *, is_done: bool) -> None:
        attempt = self._attempt
        assert attempt is not None
        if is_done:
            attempt.connection = None
        if attempt.body is not None and self._is_transfer_refused(head, payload):
            return
        if head.status != 200 and self._is_unfit(head, attempt):
            return
        if head.is_encoded:
            attempt.drop_connection()
            self._lose(LossKind.BAD_ANSWER, "the replica sent an encoded answer")
            return
        if self._continuation is not None and self._continuation.is_preparing:
            self._first_answer = head
            self._take_prompt(self._continuation, payload, is_done=is_done)
            return
        if self._is_moved and not (head.status == 200 and head.is_event_stream):
            attempt.drop_connection()
            self._lose(LossKind.BAD_ANSWER, "the replica sent no stream")
            return
        self._begin_answer(head, attempt)
        if head.is_event_stream:
            self.answer_continues(payload, is_done=is_done)
        elif is_done:
            self._tail = payload
            self._answer_whole(head, payload)
        elif head.is_binary:
            self._begin_passing(head)
            self.answer_continues(payload, is_done=False)
        else:
            self._phase = RequestPhase.HELD
            self._hold(head, payload)

    def _begin_answer(self, head: AnswerHead, attempt: ReplicaAttempt) -> None:
        """Count the first byte; of a stream, pass on the head."""
        now = self._gateway.now()
        if self._slow is not None:
            self.drop_slow_attempt()
        self._last_at = now
        self._answered_by = attempt.pool
        if not self._is_moved:
            self._first_answer = head
            if not self.caller.is_batch:  # it waits behind all others
                attempt.pool.counters.ttft.observe(now - self._started)
        attempt.note_first_byte()
        if attempt.prefilled_cached is not None:
            self._note_transfer(has_failed=False)
        if head.status < 500:
            self.service.note_success(attempt.pool, self.fingerprint, now)
        else:
            self.service.note_failure(attempt.pool, LossKind.UNAVAILABLE, now)
        if head.is_event_stream:
            attempt.learn_first_token(self.service, now)
            self._events = EventStream()
            if self._continuation is not None:
                self.deadline = now + self._silence_seconds(attempt)
            self._begin_passing(head)

    def _note_response(self, answer: bytes) -> None:
        """Remember which replica has an answer that later requests may continue."""
        if self._answered_by is not None:
            name = self._answered_by.state.name
            self._is_unnoted = not self.service.responses.note(
                answer, name, self.caller.owner
            )

    def _looks_elsewhere(self, attempt: ReplicaAttempt) -> bool:
        """Return whether another replica may have the response that is continued. Which
        one has it is not known if another process has passed it on."""
        if (
            self._previous_response is None
            or self._looked_elsewhere >= MOST_PLACES
            or not self._can_replay()
            or not self._has_other(attempt.pool, self._gateway.now())
        ):
            return False
        self._looked_elsewhere += 1
        return True

    def _is_unfit(self, head: AnswerHead, attempt: ReplicaAttempt) -> bool:
        """Handle an answer that is not passed on; return whether it was one."""
        if self._is_at_fallback and (head.status == 429 or head.status >= 500):
            attempt.drop_connection()
            self._refuse(self.service.busy_refusal())
            return True
        if head.status == 404 and self.adapter is not None and self._can_load_again():
            attempt.drop_connection()
            self._has_missed_adapter = True
            self.service.adapters.forget(attempt.pool, self.adapter)
            self._choose_again(attempt)
            return True
        if head.status == 404 and self._looks_elsewhere(attempt):
            attempt.drop_connection()
            self._place = None
            self._excluded = (*self._excluded, attempt.pool.state.name)
            self._choose_again(attempt)
            return True
        unfit = unfit_answer(head.status)
        if unfit is not None:
            attempt.drop_connection()
            self._lose(*unfit)
            return True
        retried = retried_answer(head.status, head.retry_after)
        if retried is None:
            return False
        now = self._gateway.now()
        if head.retry_after is not None and retried.kind is LossKind.BUSY:
            self.service.hold_back(attempt.pool, head.retry_after, now)
        if not self._may_retry(retried, attempt, now):
            return False
        attempt.drop_connection()
        self._lose(retried.kind, retried.message, has_retry=True)
        return True

    def _can_load_again(self) -> bool:
        """Return whether the replica may only have lost the adapter, for which another
        gateway has loaded a different one."""
        return not self._has_missed_adapter and self._can_replay()

    def _may_retry(
        self, retried: RetriedAnswer, attempt: ReplicaAttempt, now: float
    ) -> bool:
        """Return whether another replica is tried; if not, the client gets the engine's
        own words. A retry is taken from the budget."""
        if not self._can_replay():
            return False
        if retried.kind is LossKind.ENGINE_ERROR:
            if self._has_engine_error or not self._has_other(attempt.pool, now):
                return False
            self._has_engine_error = True
        return self.service.take_retry(retried.kind, now)

    def _has_other(self, pool: ReplicaPool, now: float) -> bool:
        """Return whether another replica can take the request now."""
        return self.service.has_other(
            self.revision, (*self._excluded, pool.state.name), now
        )

    def _take_prompt(
        self, continuation: StreamContinuation, payload: bytes, *, is_done: bool
    ) -> None:
        """Take the prompt of a chat, and send the request for its answer."""
        self._held.append(payload)
        if not is_done:
            return
        text = b"".join(self._held)
        self._held = []
        assert self._first_answer is not None
        if self._first_answer.status == 200 and continuation.take_prompt(text):
            self._write_upstream(continuation)
        else:  # the engine has no such endpoint: its stream cannot be continued
            self._continuation = None
            self._upstream_head = self._head
        assert self._attempt is not None
        self._connect(self._attempt.pool.take_idle())

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
        if self._continuation is not None and self._continuation.is_preparing:
            self._take_prompt(self._continuation, payload, is_done=is_done)
            return
        self._last_at = self._gateway.now()
        self._tail = (self._tail + payload)[-TAIL_BYTES:]
        if self._phase is RequestPhase.PASSING:
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
        payload = b"".join(self._held)
        self._held = []
        if self._is_unnoted:
            self._note_response(payload)
        self._begin_passing(head)
        self._pass(payload, is_done=False)

    @property
    def _keeps_alive(self) -> bool:
        """Whether the client's connection takes another request after this one."""
        head = self._head
        return head.keeps_alive and not head.is_http10 and not self._gateway.is_draining

    def _begin_passing(self, head: AnswerHead) -> None:
        self._phase = RequestPhase.PASSING
        self._body = None
        self._client_body = None
        if not self._is_moved:
            text = open_answer(
                head,
                self._request_id,
                is_chunked=not self._head.is_http10,
                closes=not self._keeps_alive,
                more_lines=MARK if self._is_at_fallback else b"",
            )
            self._client.write(text)

    def _answer_whole(self, head: AnswerHead, body: bytes) -> None:
        if self._is_unnoted:
            self._note_response(body)
        closes = not self._keeps_alive
        answer = whole_answer(
            head,
            self._request_id,
            self._corrected(body),
            closes=closes,
            more_lines=MARK if self._is_at_fallback else b"",
        )
        self._client.write(answer)
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
            if self._is_unnoted:
                self._note_response(data)
            now = self._gateway.now()
            if events.events > 1:
                attempt.pool.counters.itl.observe(now - self._last_at)
                attempt.learn_itl(events.events, now)
            self._last_at = now
        if self._continuation is not None:
            self._pass_continued(self._continuation, events, data, is_done=is_done)
            return
        if is_done:
            data += events.flush()
        if data or is_done:
            self._pass(data, is_done=is_done)

    def _pass_continued(
        self,
        continuation: StreamContinuation,
        events: EventStream,
        data: bytes,
        *,
        is_done: bool,
    ) -> None:
        """Pass events on through the continuation, and see whether they have stopped
        before their end."""
        if data:
            data = continuation.feed(data)
        is_cut = continuation.is_lost or (is_done and not continuation.is_complete)
        is_end = is_done and not is_cut
        if is_end and not continuation.has_done:
            data += events.flush()
        if data or is_end:
            self._pass(data, is_done=is_end)
        if is_cut:
            assert self._attempt is not None
            self._attempt.drop_connection()
            self._lose(LossKind.UNAVAILABLE, "the replica ended the stream too early")

    def _pass(self, payload: bytes, *, is_done: bool) -> None:
        is_chunked = not self._head.is_http10
        payload = self._corrected(payload)
        self._client.write(chunk(payload, is_last=is_done) if is_chunked else payload)
        if is_done:
            assert self._first_answer is not None
            self._end(self._first_answer.status)

    def _can_replay(self) -> bool:
        return (
            self._body is not None
            and not self._is_at_fallback
            and self._phase in (RequestPhase.SENT, RequestPhase.HELD)
            and self._attempts + 1 < MOST_ATTEMPTS
        )

    @abstractmethod
    def _silence_seconds(self, attempt: ReplicaAttempt) -> float:
        """Return the most seconds between two parts of an answer."""

    @abstractmethod
    def _end(self, status: int, *, keeps_alive: bool = True) -> None:
        """End the request, whose answer is written."""
