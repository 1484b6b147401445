"""Life of one request: sent to a replica, sent again where that is safe, answered."""

from typing import Final

from corral.gateway.continuation.continuation_requests import CHAT_PATH, TEXT_PATH
from corral.gateway.counting.token_counts import TokenCounts, read_usage
from corral.gateway.framing.event_stream import end_event
from corral.gateway.openai_errors import GatewayCode, GatewayRefusal, render_refusal
from corral.gateway.replicas.replica_connection import REPLICA_CLOSED, LossKind
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.gateway.requests.answered_request import MOST_ATTEMPTS, AnsweredRequest
from corral.gateway.requests.attempt import ReplicaAttempt, refusal_of_loss
from corral.gateway.requests.routed_request import RequestPhase

MOST_MOVES: Final = 8
# whose streams end with [DONE]
DONE_PATHS: Final = frozenset({CHAT_PATH, TEXT_PATH})
CLIENT_GONE_STATUS: Final = 499
SILENT_TOKENS: Final = 10.0  # times between tokens, after which a stream has stopped
LEAST_SILENCE_SECONDS: Final = 5.0
KEY_REVOKED: Final = GatewayRefusal(
    GatewayCode.KEY_REVOKED, "this API key was revoked or may not use this model now"
)


class RelayedRequest(AnsweredRequest):
    """One request on its way through the gateway."""

    __slots__ = ()

    # losses

    def answer_closed(self) -> None:
        events = self._events
        is_stream = events is not None and self._head.path in DONE_PATHS
        if is_stream and events is not None and not events.is_done:
            # the same as the end of a replica that was killed
            self.answer_lost(LossKind.CLOSED, REPLICA_CLOSED)
        else:
            self.answer_continues(b"", is_done=True)

    def answer_lost(self, kind: LossKind, message: str) -> None:
        attempt = self._attempt
        assert attempt is not None
        connection = attempt.connection
        attempt.connection = None
        if (
            kind is LossKind.CLOSED
            and self._phase is RequestPhase.SENT
            and connection is not None
            and connection.is_reused
            and self._body is not None
        ):
            # the replica may only have closed an idle connection
            attempt.pool.note_loss(self.fingerprint, self._gateway.now())
            self._connect(None)
            return
        self._lose(kind, message)

    def _lose(self, kind: LossKind, message: str, *, has_retry: bool = False) -> None:
        now = self._gateway.now()
        attempt = self._attempt
        assert attempt is not None
        pool = attempt.pool
        if kind is LossKind.CLOSED:
            pool.note_loss(self.fingerprint, now)
            self.service.check_alive(pool, self._gateway.now)
        self.service.note_failure(pool, kind, now)
        may_replay = self._can_replay()
        self._end_stage()
        if kind is not LossKind.REFUSED:  # such a replica is ejected
            self._attempts += 1
        if self._slow is not None:
            attempt.leave()
            self._return_to_slow_attempt()
            return
        if self._is_moved or self._phase is RequestPhase.PASSING:
            self._move_stream(attempt, kind, message, now, has_retry=has_retry)
            return
        attempt.leave()
        self._attempt = None
        self._answered_by = None
        self._held = []
        self._held_bytes = 0
        self._tail = b""
        if not may_replay or not (has_retry or self.service.take_retry(kind, now)):
            self._refuse(refusal_of_loss(kind, message))
            return
        self._excluded = (*self._excluded, pool.state.name)
        self.send_or_wait(now)

    def _move_stream(
        self,
        attempt: ReplicaAttempt,
        kind: LossKind,
        message: str,
        now: float,
        *,
        has_retry: bool,
    ) -> None:
        """Continue a stream at another replica, or end it with an error."""
        continuation = self._continuation
        events = self._events
        if (
            continuation is None
            or (events is not None and not events.can_be_ended)
            or self._attempts > MOST_MOVES
            or not continuation.move()
            or not (has_retry or self.service.take_retry(kind, now))
        ):
            self._end_cut_answer(message)
            return
        attempt.leave()
        self._attempt = None
        self._events = None
        self._is_moved = True
        self._since = now
        self._excluded = (attempt.pool.state.name,)
        self._phase = RequestPhase.QUEUED
        self._write_upstream(continuation)
        self.service.metrics.streams_continued += 1
        self.send_or_wait(now)

    def _end_cut_answer(
        self, message: str, code: GatewayCode = GatewayCode.REPLICA_LOST
    ) -> None:
        """End an answer whose beginning has been passed on."""
        events = self._events
        continuation = self._continuation
        if continuation is not None and continuation.is_complete:
            closing = (
                b""
                if continuation.has_done
                else continuation.closing_events(self._prompt_tokens)
            )
            self._pass(closing, is_done=True)
            return
        if events is not None and events.is_done:
            self._pass(b"", is_done=True)
            return
        if code is GatewayCode.REPLICA_LOST:
            self.service.metrics.streams_lost += 1
        if self._is_moved or (events is not None and events.can_be_ended):
            event = end_event(self._head.path, code, self._passed_tokens, message)
            self._pass(event, is_done=True)
        else:
            # without its last chunk, the client sees that the answer is cut
            self._end(502, keeps_alive=False)

    @property
    def _passed_tokens(self) -> int:
        """Tokens of a stream that were passed on."""
        if self._continuation is not None:
            return self._continuation.tokens
        return 0 if self._events is None else self._events.tokens

    # deadlines

    def _silence_seconds(self, attempt: ReplicaAttempt) -> float:
        if self._continuation is None:
            return self._deadline_seconds
        state = attempt.pool.state
        seconds = SILENT_TOKENS * state.rates.itl_seconds(state.running)
        return min(self._deadline_seconds, max(LEAST_SILENCE_SECONDS, seconds))

    def expire(self, now: float) -> None:
        """Handle a deadline that has passed."""
        attempt = self._attempt
        assert attempt is not None
        if self._expire_prefill(now):
            return
        if self._phase is RequestPhase.SENT:
            self._expire_sent(attempt, now)
            return
        silent = 0.0 if self._is_paused else now - self._last_at
        self.deadline = now - silent + self._silence_seconds(attempt)
        if self.deadline <= now:
            attempt.drop_connection()
            self._lose(LossKind.CLOSED, "the replica's answer stopped")

    def _expire_sent(self, attempt: ReplicaAttempt, now: float) -> None:
        until = attempt.begun_at + self._deadline_seconds
        is_early = now < until
        if is_early:
            # only later than usual: it goes on if no other replica can do better
            self._has_left_early = True
            if not (
                self._can_replay()
                and self._has_other(attempt.pool, now)
                and self.service.take_retry(LossKind.NO_FIRST_BYTE, now)
            ):
                self.deadline = until
                return
            if self._may_race(attempt):
                kind = LossKind.NO_FIRST_BYTE
                self.service.note_failure(attempt.pool, kind, now)
                self._attempts += 1
                self._begin_race(attempt, now)
                return
        elif now - self._since >= 2 * self._deadline_seconds:
            self._attempts = MOST_ATTEMPTS
        attempt.drop_connection()
        self._lose(
            LossKind.NO_FIRST_BYTE,
            "no answer came within the deadline",
            has_retry=is_early,
        )

    def _may_race(self, attempt: ReplicaAttempt) -> bool:
        """Return whether the attempt can go on while another one is made."""
        continuation = self._continuation
        is_preparing = continuation is not None and continuation.is_preparing
        has_request = attempt.connection is not None and self.adapter is None
        is_whole = attempt.body is None and attempt.prefilled_cached is None
        return has_request and is_whole and not is_preparing

    # back-pressure, and the end

    def pause(self) -> None:
        """Stop reading the answer: the client reads too slowly."""
        self._is_paused = True
        if self._attempt is not None:
            self._attempt.pause()

    def resume(self) -> None:
        self._is_paused = False
        self._last_at = self._gateway.now()
        if self._attempt is not None:
            self._attempt.resume()

    def client_gone(self) -> None:
        """End the work at the replica: the client has left."""
        if self._phase is RequestPhase.ENDED:
            return
        self.service.metrics.client_gone += 1
        self._leave_replica()
        self._finish(CLIENT_GONE_STATUS)

    def revoke(self) -> None:
        """End the request of a caller who may no longer send it."""
        self._leave_replica()
        if self._is_moved or self._phase is RequestPhase.PASSING:
            self._end_cut_answer(KEY_REVOKED.message, KEY_REVOKED.code)
        else:
            self._refuse(KEY_REVOKED)

    def _leave_replica(self) -> None:
        self._leave_queue()
        if self._attempt is not None:
            self._attempt.drop_connection()

    def _refuse(self, refusal: GatewayRefusal) -> None:
        if self._is_moved:
            self._end_cut_answer(refusal.message)
            return
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
        attempt = self._attempt
        self._attempt = None
        if self._slow is not None:
            self.drop_slow_attempt()
        self._end_stage()
        self._count_prefill()
        pool = self._answered_by
        tokens = 0 if pool is None else self._count_tokens(pool, attempt, now)
        if attempt is not None:
            attempt.leave()
        self._phase = RequestPhase.ENDED
        self._body = None
        gateway.active.discard(self)
        metrics = service.metrics
        metrics.in_flight -= 1
        if self.caller.is_batch:
            metrics.batch_in_flight -= 1
        counters = metrics.unrouted if pool is None else pool.counters
        counters.requests[status] = counters.requests.get(status, 0) + 1
        counters.request_seconds.observe(now - self._started)
        if self.caller.limits is not None:
            self.caller.limits.finish(tokens, self._admitted_tokens)
        if self.charge is not None:
            self.charge.finish(tokens)
        if len(service.queue) or service.pinned:
            service.send_waiting(now)

    def _count_tokens(
        self, pool: ReplicaPool, attempt: ReplicaAttempt | None, now: float
    ) -> int:
        """Count tokens as the engine reports them; return those of the request."""
        usage = read_usage(self._tail) if self._events is None else self._usage()
        sums = pool.counters.of_caller(self.caller.name)
        sums.requests += 1
        if attempt is not None and self._events is not None and not self._is_moved:
            attempt.learn_prefill(usage)
        if usage is None:
            output = self._passed_tokens
            if output:
                sums.add(self._prompt_tokens, 0, output)
            return self._prompt_tokens + output
        cached = usage.cached
        if attempt is not None and attempt.prefilled_cached is not None:
            cached = min(cached, attempt.prefilled_cached)
        sums.add(usage.prompt, cached, usage.output)
        self.service.expected_output.observe(self._output_limit, usage.output)
        if attempt is not None and not self._is_moved:
            if self._events is None:
                attempt.learn_whole(self.service, usage.output, now)
            attempt.learn_cached(self._hashes, usage)
        return usage.prompt + usage.output

    def _usage(self) -> TokenCounts | None:
        if self._continuation is not None:
            return self._continuation.usage
        return read_usage(self._tail if self._events is None else self._events.tail)
