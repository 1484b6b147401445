"""One attempt of a request at a replica: what it holds there, and what it teaches."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from corral.gateway.counting.token_counts import TokenCounts
from corral.gateway.openai_errors import GatewayCode, GatewayRefusal
from corral.gateway.replicas.adapter_loads import AdapterLoads
from corral.gateway.replicas.replica_connection import (
    ConnectionPool,
    LossKind,
    ReplicaConnection,
)
from corral.gateway.replicas.replica_pool import ReplicaPool
from corral.gateway.routing.service_route import ServiceRoute

ITL_SAMPLE_EVENTS: Final = 16
WHOLE_SAMPLE: Final = 4


class ReplicaAttempt:
    """Work at one replica, counted there from its sending to its end.

    Attributes:
        begun_at: Time from which the deadline of its first byte counts.
        body: Body for this replica alone; None: that of the request.
        prefilled_cached: Tokens of the prompt that were cached where another replica has
            computed it; None: this one computes it.
        is_reserved: Whether it only keeps a place, and is sent later.
    """

    __slots__ = (
        "_adapter",
        "_adapters",
        "_first_token_seconds",
        "_in_flight",
        "_is_running",
        "_new_tokens",
        "_sampled_at",
        "_sampled_events",
        "_sent_tokens",
        "begun_at",
        "body",
        "connection",
        "is_reserved",
        "pool",
        "prefilled_cached",
        "sent_at",
    )

    def __init__(self, pool: ReplicaPool, new_tokens: int, now: float) -> None:
        self.pool = pool
        self.connection: ReplicaConnection | None = None
        self._new_tokens = new_tokens
        self.sent_at = now
        self.begun_at = now
        self.body: bytes | None = None
        self.prefilled_cached: int | None = None
        self.is_reserved = False
        self._sent_tokens = 0
        self._first_token_seconds: float | None = None
        self._is_running = False
        self._sampled_at = now
        self._sampled_events = 0
        self._adapters: AdapterLoads | None = None
        self._adapter = ""
        state = pool.state
        state.in_flight += 1
        self._in_flight = state.in_flight
        state.pending_tokens += new_tokens

    def use_adapter(self, adapters: AdapterLoads, name: str) -> None:
        """Keep an adapter from being unloaded until the attempt ends."""
        self._adapters = adapters
        self._adapter = name
        adapters.use(self.pool, name)

    def pause(self) -> None:
        """Stop reading the replica's answer."""
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        """Read the replica's answer again."""
        if self.connection is not None:
            self.connection.resume()

    def restart(self, now: float) -> None:
        """Count the time from now on: only now the attempt is sent."""
        self.sent_at = now
        self.begun_at = now
        self.is_reserved = False
        self._sampled_at = now

    def take_prompt(self, body: bytes | None, cached: int, sent_tokens: int) -> None:
        """Let another replica's work on the prompt count as done.

        Args:
            body: What this replica gets in place of the request's body.
            cached: Tokens that were cached at the other replica.
            sent_tokens: Tokens whose cache comes from there.
        """
        self.body = body
        self.prefilled_cached = cached
        self._sent_tokens = sent_tokens

    def note_first_byte(self) -> None:
        """Count the prompt as prefilled."""
        state = self.pool.state
        state.pending_tokens -= self._new_tokens
        state.running += 1
        self._is_running = True

    def expects(self, pool: ConnectionPool) -> bool:
        """Return whether the attempt waits for a connection to this replica."""
        return (
            self.connection is None
            and not self._is_running
            and self.pool is pool
            and not self.is_reserved
        )

    def learn_first_token(self, service: ServiceRoute, now: float) -> None:
        """Learn from the time to the first event of a stream.

        The rates learn from it when the attempt ends: then the engine has reported how
        many tokens of the prompt were new.
        """
        state = self.pool.state
        seconds = now - self.sent_at
        # a replica prefills one prompt after another
        self._first_token_seconds = now - max(self.sent_at, state.first_token_at)
        state.first_token_at = now
        if self.prefilled_cached is not None:
            service.prefill.transfer.observe(
                self._sent_tokens, self._first_token_seconds, state.rates
            )
            self._first_token_seconds = None
            self._sampled_at = now
            return
        service.first_tokens.observe(seconds)
        expected_seconds = state.rates.prefill_seconds(self._new_tokens)
        service.learn_limit(self.pool, self._in_flight, seconds, expected_seconds)
        self._sampled_at = now

    def learn_prefill(self, usage: TokenCounts | None) -> None:
        """Learn the prefill rate from a stream.

        Args:
            usage: Tokens as the engine reports them; None: the estimate counts.
        """
        if self._first_token_seconds is None:
            return
        new_tokens = self._new_tokens if usage is None else usage.prompt - usage.cached
        self.pool.state.rates.observe_first_token(new_tokens, self._first_token_seconds)

    def learn_prompt(
        self, service: ServiceRoute, usage: TokenCounts | None, now: float
    ) -> None:
        """Learn from a prompt that was computed for another replica."""
        pool = self.pool
        state = pool.state
        seconds = now - self.sent_at
        alone_seconds = now - max(self.sent_at, state.first_token_at)
        state.first_token_at = now
        expected_seconds = state.rates.overhead_seconds + state.rates.prefill_seconds(
            self._new_tokens
        )
        new_tokens = self._new_tokens if usage is None else usage.prompt - usage.cached
        state.rates.observe_first_token(new_tokens, alone_seconds)
        service.prefill.first_tokens.observe(seconds)
        service.learn_limit(pool, self._in_flight, seconds, expected_seconds)
        pool.counters.prefill_seconds.observe(seconds)

    def learn_itl(self, events: int, now: float) -> None:
        """Learn from the time between events, each ITL_SAMPLE_EVENTS of them."""
        new_events = events - self._sampled_events
        if new_events < ITL_SAMPLE_EVENTS:
            return
        state = self.pool.state
        state.rates.observe_itl(state.running, (now - self._sampled_at) / new_events)
        self._sampled_at = now
        self._sampled_events = events

    def learn_whole(self, service: ServiceRoute, tokens: int, now: float) -> None:
        """Learn from an answer that is not a stream, one in WHOLE_SAMPLE of them."""
        if self.prefilled_cached is not None or tokens < 1:
            return
        if service.next_tie() % WHOLE_SAMPLE:
            return
        state = self.pool.state
        rates = state.rates
        seconds = now - self.sent_at
        prefill_seconds = rates.overhead_seconds + rates.prefill_seconds(
            self._new_tokens
        )
        rates.observe_itl(state.running, max(0.0, seconds - prefill_seconds) / tokens)
        expected_seconds = prefill_seconds + tokens * rates.itl_seconds(state.running)
        service.learn_limit(self.pool, self._in_flight, seconds, expected_seconds)

    def learn_cached(self, hashes: Sequence[int], usage: TokenCounts) -> None:
        """Learn from the cached tokens that the engine reported."""
        if hashes and usage.prompt:
            blocks = round(usage.cached * len(hashes) / usage.prompt)
            self.pool.state.index.correct(hashes, blocks)

    def drop_connection(self) -> None:
        """Close the connection, so that the replica stops its work."""
        connection = self.connection
        self.connection = None
        if connection is not None:
            connection.abandon()

    def leave(self) -> None:
        """Release what the attempt holds at the replica; call it once."""
        state = self.pool.state
        state.in_flight -= 1
        if self._is_running:
            state.running -= 1
        else:
            state.pending_tokens -= self._new_tokens
        if self._adapters is not None:
            self._adapters.release(self.pool, self._adapter)


def refusal_of_loss(kind: LossKind, message: str) -> GatewayRefusal:
    """Return the refusal of a request that no replica has answered."""
    if kind is LossKind.NO_FIRST_BYTE:
        return GatewayRefusal(GatewayCode.DEADLINE_EXCEEDED, message)
    if kind in (LossKind.BAD_ANSWER, LossKind.WRONG_KEY):
        return GatewayRefusal(GatewayCode.BAD_ANSWER, message)
    return GatewayRefusal(GatewayCode.REPLICA_LOST, message)


class RetriedAnswer(NamedTuple):
    """Answer after which another replica may be tried."""

    kind: LossKind
    message: str


def unfit_answer(status: int) -> tuple[LossKind, str] | None:
    """Return why an answer of this status is never passed on; None if it may be."""
    if status in (401, 403):
        return LossKind.WRONG_KEY, "the replica refused the gateway's key"
    if 300 <= status < 400:
        return LossKind.BAD_ANSWER, "the replica sent a redirect"
    return None


def retried_answer(status: int, retry_after: float | None) -> RetriedAnswer | None:
    """Return why another replica may be tried; None if the engine has the last word.

    Args:
        retry_after: Seconds after which the replica takes requests again, as it says.
    """
    if status == 429 or (status == 503 and retry_after is not None):
        return RetriedAnswer(LossKind.BUSY, "the replica is busy")
    if status in (502, 503):
        return RetriedAnswer(LossKind.UNAVAILABLE, f"the replica answered {status}")
    if status == 500:
        return RetriedAnswer(LossKind.ENGINE_ERROR, "the replica answered 500")
    return None
