"""One attempt of a request at a replica: what it holds there, and what it teaches."""

from collections.abc import Sequence
from typing import Final

from corral.gateway.openai_errors import GatewayCode, GatewayRefusal
from corral.gateway.replica_connection import (
    ConnectionPool,
    LossKind,
    ReplicaConnection,
)
from corral.gateway.replica_pool import ReplicaPool
from corral.gateway.service_route import ServiceRoute
from corral.gateway.token_counts import TokenCounts

ITL_SAMPLE_EVENTS: Final = 16
WHOLE_SAMPLE: Final = 4


class ReplicaAttempt:
    """Work at one replica, counted there from its sending to its end."""

    __slots__ = (
        "_is_running",
        "_new_tokens",
        "_sampled_at",
        "_sampled_events",
        "_sent_at",
        "connection",
        "pool",
    )

    def __init__(self, pool: ReplicaPool, new_tokens: int, now: float) -> None:
        self.pool = pool
        self.connection: ReplicaConnection | None = None
        self._new_tokens = new_tokens
        self._sent_at = now
        self._is_running = False
        self._sampled_at = now
        self._sampled_events = 0
        state = pool.state
        state.in_flight += 1
        state.pending_tokens += new_tokens

    def note_first_byte(self) -> None:
        """Count the prompt as prefilled."""
        state = self.pool.state
        state.pending_tokens -= self._new_tokens
        state.running += 1
        self._is_running = True

    @property
    def is_answered(self) -> bool:
        """Whether the first byte of the answer has come."""
        return self._is_running

    def expects(self, pool: ConnectionPool) -> bool:
        """Return whether the attempt waits for a connection to this replica."""
        return self.connection is None and not self._is_running and self.pool is pool

    def learn_first_token(self, service: ServiceRoute, now: float) -> None:
        """Learn from the time to the first event of a stream."""
        rates = self.pool.state.rates
        seconds = now - self._sent_at
        rates.observe_first_token(self._new_tokens, seconds)
        expected_seconds = rates.prefill_seconds(self._new_tokens)
        service.learn_limit(self.pool, seconds, expected_seconds)
        self._sampled_at = now

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
        if tokens < 1 or service.next_tie() % WHOLE_SAMPLE:
            return
        state = self.pool.state
        rates = state.rates
        seconds = now - self._sent_at
        prefill_seconds = rates.overhead_seconds + rates.prefill_seconds(
            self._new_tokens
        )
        rates.observe_itl(state.running, max(0.0, seconds - prefill_seconds) / tokens)
        expected_seconds = prefill_seconds + tokens * rates.itl_seconds(state.running)
        service.learn_limit(self.pool, seconds, expected_seconds)

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


def refusal_of_loss(kind: LossKind, message: str) -> GatewayRefusal:
    """Return the refusal of a request that no replica has answered."""
    if kind is LossKind.NO_FIRST_BYTE:
        return GatewayRefusal(GatewayCode.DEADLINE_EXCEEDED, message)
    if kind in (LossKind.BAD_ANSWER, LossKind.WRONG_KEY):
        return GatewayRefusal(GatewayCode.BAD_ANSWER, message)
    return GatewayRefusal(GatewayCode.REPLICA_LOST, message)


def unfit_answer(status: int, *, can_replay: bool) -> tuple[LossKind, str] | None:
    """Return why an answer of this status is not passed on; None if it is.

    Args:
        can_replay: Whether another replica can be tried; if not, the client gets the
            engine's own words.
    """
    if status in (401, 403):
        return LossKind.WRONG_KEY, "the replica refused the gateway's key"
    if 300 <= status < 400:
        return LossKind.BAD_ANSWER, "the replica sent a redirect"
    if status == 429 and can_replay:
        return LossKind.BUSY, "the replica is busy"
    if status in (502, 503) and can_replay:
        return LossKind.UNAVAILABLE, f"the replica answered {status}"
    return None
