"""Life of one request to an HTTP service: bytes pass both ways, also after an upgrade."""

from typing import Final

from corral.gateway.access.budgets import BudgetCharge
from corral.gateway.access.callers import GatewayCaller
from corral.gateway.counting.gateway_metrics import ReplicaCounters
from corral.gateway.counting.token_counts import read_usage
from corral.gateway.exchanges.routed_exchange import (
    ANSWER_SILENCE_SECONDS,
    MOST_ATTEMPTS,
    ExchangePhase,
    RoutedExchange,
)
from corral.gateway.framing.answer_framing import AnswerHead, BodyFraming
from corral.gateway.framing.answer_text import chunk
from corral.gateway.framing.client_connection import ClientConnection
from corral.gateway.framing.forwarded_heads import answered_head, authority_of
from corral.gateway.framing.request_head import RequestHead
from corral.gateway.framing.websocket_frames import WebSocketFrames, close_frame
from corral.gateway.openai_errors import GatewayCode, GatewayRefusal, render_refusal
from corral.gateway.replicas.replica_connection import (
    REPLICA_CLOSED,
    LossKind,
    ReplicaConnection,
)
from corral.gateway.requests.attempt import refusal_of_loss, unfit_answer
from corral.gateway.requests.relay import CLIENT_GONE_STATUS, KEY_REVOKED
from corral.gateway.requests.routed_request import RelayHost
from corral.gateway.routing.exchange_targets import ExchangeTarget

TAIL_BYTES: Final = 2048
WEBSOCKET: Final = b"websocket"
# close codes of RFC 6455 and its registry
POLICY_VIOLATION: Final = 1008
SERVICE_RESTART: Final = 1012
# answers of a server that is not well; 500 may be the fault of the request
_UNWELL: Final = frozenset({502, 503, 504})


class ServiceExchange(RoutedExchange):
    """One request to an HTTP service and its answer.

    Args:
        admitted_tokens: Tokens that the caller's limits have counted for it.
    """

    __slots__ = (
        "_admitted_tokens",
        "_frames",
        "_is_chunked",
        "_status",
        "_tail",
        "charge",
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
        admitted_tokens: int,
    ) -> None:
        super().__init__(gateway, client, target, caller, head, length, request_id)
        self._admitted_tokens = admitted_tokens
        self.charge: BudgetCharge | None = None
        self._status = 0
        self._is_chunked = False
        self._tail: bytes | None = None
        self._frames: WebSocketFrames | None = None

    # the answer

    def answer_begins(self, head: AnswerHead, payload: bytes, *, is_done: bool) -> None:
        attempt = self._attempt
        assert attempt is not None
        connection = attempt.connection
        assert connection is not None
        if is_done:
            attempt.connection = None
        unfit = unfit_answer(head.status) if self._target.is_engine else None
        if unfit is not None:
            attempt.drop_connection()
            self._lose(*unfit)
            return
        now = self._gateway.now()
        self._last_at = now
        self._status = head.status
        attempt.note_first_byte()
        attempt.pool.counters.ttft.observe(now - self._started)
        if head.status in _UNWELL:
            self.service.note_failure(attempt.pool, LossKind.UNAVAILABLE, now)
        else:
            self.service.note_success(attempt.pool, 0, now)
        self._kept = None
        if head.status == 101:
            self._begin_tunnel(head, payload)
            return
        self._phase = ExchangePhase.PASSING
        self._set_deadline(now)
        if self._target.response:  # its tokens were counted when it was made
            if self._head.method == b"DELETE" and head.status < 300:
                self.service.responses.forget(self._target.response)
        elif not head.is_binary and not head.is_encoded:
            self._tail = b""
        framing = self._framing(head, connection)
        self._write_head(head, framing)
        if self._head.method == b"HEAD":
            self._is_chunked = False
        self._pass(payload, is_done=is_done)

    def _framing(self, head: AnswerHead, connection: ReplicaConnection) -> bytes:
        """Return the header that says how the body ends, as this client can read it."""
        if head.status in (204, 304):
            return b""
        if head.framing is BodyFraming.LENGTH:
            return b"Content-Length: %d\r\n" % connection.answer_length
        self._is_chunked = not self._head.is_http10
        return b"Transfer-Encoding: chunked\r\n" if self._is_chunked else b""

    def _write_head(self, head: AnswerHead, framing: bytes) -> None:
        addresses = {
            authority_of(pool.entry).lower() for pool in self.service.pools.values()
        }
        addresses.add(self._head.host.lower())
        text = answered_head(
            head,
            self.request_id,
            framing,
            prefix=self._target.prefix,
            authorities=addresses,
            closes=not self._keeps_alive and head.status != 101,
        )
        self._client.write(text)

    def _begin_tunnel(self, head: AnswerHead, payload: bytes) -> None:
        self._phase = ExchangePhase.TUNNEL
        self._set_deadline(self._last_at)
        upgrade = self._head.upgrade
        self._write_head(head, b"Connection: Upgrade\r\nUpgrade: %b\r\n" % upgrade)
        if upgrade == WEBSOCKET:
            self._frames = WebSocketFrames()
        if payload:
            self.answer_continues(payload, is_done=False)
        self._client.begin_tunnel(self)

    def answer_continues(self, payload: bytes, *, is_done: bool) -> None:
        if self._frames is not None:
            self._frames.feed(payload)
        if is_done and self._attempt is not None:
            self._attempt.connection = None
        self._last_at = self._gateway.now()
        if self._phase is ExchangePhase.TUNNEL:
            self._client.write(payload)
        else:
            self._pass(payload, is_done=is_done)

    def _pass(self, payload: bytes, *, is_done: bool) -> None:
        if self._tail is not None:
            self._tail = (self._tail + payload)[-TAIL_BYTES:]
        text = chunk(payload, is_last=is_done) if self._is_chunked else payload
        if text:
            self._client.write(text)
        if is_done:
            self._end(self._status)

    def answer_closed(self) -> None:
        if self._phase is ExchangePhase.TUNNEL:
            self._end_tunnel(SERVICE_RESTART, REPLICA_CLOSED)
        else:
            self.answer_continues(b"", is_done=True)

    def answer_lost(self, kind: LossKind, message: str) -> None:
        attempt = self._attempt
        assert attempt is not None
        connection = attempt.connection
        attempt.connection = None
        if (
            kind is LossKind.CLOSED
            and self._phase is ExchangePhase.SENT
            and connection is not None
            and connection.is_reused
            and self._may_repeat
        ):
            self._connect(None)  # the replica may only have closed an idle connection
            return
        self._lose(kind, message)

    def _lose(self, kind: LossKind, message: str) -> None:
        now = self._gateway.now()
        attempt = self._attempt
        assert attempt is not None
        pool = attempt.pool
        if self._phase is ExchangePhase.TUNNEL:
            self._end_tunnel(SERVICE_RESTART, message)
            return
        if kind is LossKind.CLOSED:
            self.service.check_alive(pool, self._gateway.now)
        self.service.note_failure(pool, kind, now)
        if self._phase is ExchangePhase.PASSING:
            self._end(502, keeps_alive=False)
            return
        if kind is not LossKind.REFUSED:  # such a replica is ejected
            self._attempts += 1
        may_repeat = self._may_repeat or kind is LossKind.REFUSED
        attempt.leave()
        self._attempt = None
        if not (
            may_repeat and self._can_go_elsewhere and self.service.take_retry(kind, now)
        ):
            self._refuse(refusal_of_loss(kind, message))
            return
        self._excluded = (*self._excluded, pool.state.name)
        self.send_or_wait(now)

    # deadlines, back-pressure, and the end

    def expire(self, now: float) -> None:
        """Handle a deadline that has passed."""
        attempt = self._attempt
        assert attempt is not None
        if self._phase is ExchangePhase.PASSING:
            silent = 0.0 if self._is_client_slow else now - self._last_at
            self.deadline = now - silent + ANSWER_SILENCE_SECONDS
            if self.deadline > now:
                return
            attempt.drop_connection()
            self._lose(LossKind.CLOSED, "the replica's answer stopped")
            return
        attempt.drop_connection()
        if self._waits_for_client:
            self._refuse(
                GatewayRefusal(GatewayCode.REQUEST_TIMEOUT, "the body did not come")
            )
            return
        self._attempts = MOST_ATTEMPTS
        self._lose(LossKind.NO_FIRST_BYTE, "no answer came within the deadline")

    def pause(self) -> None:
        """Stop reading the answer: the client reads too slowly."""
        self._is_client_slow = True
        if self._attempt is not None:
            self._attempt.pause()

    def resume(self) -> None:
        self._is_client_slow = False
        self._last_at = self._gateway.now()
        if self._attempt is not None:
            self._attempt.resume()

    def client_gone(self) -> None:
        """End the work at the replica: the client has left."""
        if self._phase is ExchangePhase.ENDED:
            return
        is_tunnel = self._phase is ExchangePhase.TUNNEL
        if not is_tunnel:
            self.service.metrics.client_gone += 1
        self._leave_replica()
        self._finish(self._status if is_tunnel else CLIENT_GONE_STATUS)

    def body_refused(self, refusal: GatewayRefusal) -> None:
        """End the work: the body is not valid."""
        self._leave_replica()
        if self._phase is ExchangePhase.PASSING:
            self._client.abort()
        self._finish(refusal.status)
        self._client.request = None

    def revoke(self) -> None:
        """End the request of a caller who may no longer send it."""
        if self._phase is ExchangePhase.TUNNEL:
            self._end_tunnel(POLICY_VIOLATION, KEY_REVOKED.message)
            return
        self._leave_replica()
        if self._phase is ExchangePhase.PASSING:
            self._end(KEY_REVOKED.status, keeps_alive=False)
        else:
            self._refuse(KEY_REVOKED)

    def end_tunnel(self) -> None:
        """Close the tunnel, if the request has one: this process ends."""
        if self._phase is ExchangePhase.TUNNEL:
            self._end_tunnel(SERVICE_RESTART, "the gateway ends")

    def _end_tunnel(self, code: int, reason: str) -> None:
        """Close a tunnel; a WebSocket gets its close frame unless it had one."""
        frames = self._frames
        if frames is not None and frames.is_between_frames and not frames.has_closed:
            self._client.write(close_frame(code, reason))
        self._leave_replica()
        self._end(self._status, keeps_alive=False)

    def _leave_replica(self) -> None:
        self._leave_queue()
        attempt = self._attempt
        if attempt is None:
            return
        if self._phase is ExchangePhase.TUNNEL and attempt.connection is not None:
            attempt.connection.close()
            attempt.connection = None
        else:
            attempt.drop_connection()

    @property
    def _keeps_alive(self) -> bool:
        head = self._head
        return (
            head.keeps_alive
            and not head.is_http10
            and not self._gateway.is_draining
            and self._is_body_done
        )

    def _refuse(self, refusal: GatewayRefusal) -> None:
        closes = not self._keeps_alive
        self._client.write(
            render_refusal(refusal, closes=closes, request_id=self.request_id)
        )
        self._end(refusal.status)

    def _end(self, status: int, *, keeps_alive: bool = True) -> None:
        keeps_alive = keeps_alive and self._keeps_alive
        is_tunnel = self._phase is ExchangePhase.TUNNEL
        if self._attempt is not None and not self._is_body_done:
            self._attempt.drop_connection()
        self._finish(status)
        if is_tunnel:
            self._client.request = None
            self._client.close()
        else:
            self._client.exchange_done(keeps_alive=keeps_alive)

    def _finish(self, status: int) -> None:
        """Release what the request holds, and count it."""
        service = self.service
        now = self._gateway.now()
        attempt = self._attempt
        self._attempt = None
        self._phase = ExchangePhase.ENDED
        self._kept = None
        self._gateway.active.discard(self)
        service.metrics.in_flight -= 1
        counters = service.metrics.unrouted
        tokens = 0
        if attempt is not None:
            counters = attempt.pool.counters
            tokens = self._count_tokens(counters)
            attempt.leave()
        counters.requests[status] = counters.requests.get(status, 0) + 1
        # the time of a tunnel is that to its beginning
        seconds = (self._last_at if status == 101 else now) - self._started
        counters.request_seconds.observe(seconds)
        if self.caller.limits is not None:
            self.caller.limits.finish(tokens, self._admitted_tokens)
        if self.charge is not None:
            self.charge.finish(tokens)
        if len(service.queue) or service.pinned:
            service.send_waiting(now)

    def _count_tokens(self, counters: ReplicaCounters) -> int:
        """Count tokens as an engine may report them; return those of the request."""
        sums = counters.of_caller(self.caller.name)
        sums.requests += 1
        usage = read_usage(self._tail) if self._tail else None
        if usage is None:
            return 0
        sums.add(usage.prompt, usage.cached, usage.output)
        return usage.prompt + usage.output
