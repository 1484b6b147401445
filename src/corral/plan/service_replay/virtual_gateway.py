"""Gateway in virtual time: it sends requests to replicas by `route`, and learns from their
answers as the real one does."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from corral.plan.service_replay.batching_engine import BatchingEngine, EngineSequence
from corral.plan.service_replay.trace_request import BLOCK_TOKENS, TraceRequest
from corral.route.choice import ReplicaState, pick
from corral.route.concurrency_limit import ConcurrencyLimit
from corral.route.expected_output import ExpectedOutput
from corral.route.fair_queue import FairQueue, PriorityClass

QUEUED_REQUESTS: Final = 1000  # that may wait for a replica
DEADLINE_SECONDS: Final = 60.0  # for which a request waits for a replica
LIMIT_SLACK_SECONDS: Final = 0.25  # as in the gateway
CALLER: Final = "trace"


class VirtualReplica:
    """Replica of the replayed service: its engine, and what the gateway holds of it.

    Attributes:
        begun_at: time from which its GPUs are in use.
        ready_at: time from which it takes requests.
        draining: it gets no new requests, and ends with those under way.
        ended_at: time at which its GPUs are free again; None: not yet.
    """

    __slots__ = (
        "begun_at",
        "draining",
        "ended_at",
        "engine",
        "limit",
        "ready_at",
        "state",
        "version",
    )

    def __init__(
        self, name: str, engine: BatchingEngine, begun_at: float, ready_at: float
    ) -> None:
        self.engine = engine
        self.limit = ConcurrencyLimit()
        self.state = ReplicaState(name, limit=self.limit.limit)
        self.begun_at = begun_at
        self.ready_at = ready_at
        self.draining = False
        self.ended_at: float | None = None
        self.version = 0  # of the engine's schedule

    def seconds_until(self, end: float) -> float:
        """Return the seconds up to `end` in which its GPUs were in use."""
        ended = end if self.ended_at is None else min(self.ended_at, end)
        return max(0.0, ended - self.begun_at)


class SentRequest:
    """Request at a replica, as the gateway counts it."""

    __slots__ = ("arrival", "in_flight", "new_tokens", "replica", "sent_at", "work")

    def __init__(
        self, replica: VirtualReplica, new_tokens: int, arrival: float, sent_at: float
    ) -> None:
        self.replica = replica
        self.new_tokens = new_tokens
        self.arrival = arrival
        self.sent_at = sent_at
        self.in_flight = replica.state.in_flight + 1
        self.work = 0.0  # seconds for which the replica worked on its prompt


@dataclass(slots=True, kw_only=True)
class ReplayCounts:
    """Whole counters of the gateway, and sums of the latencies that it measured."""

    arrivals: int = 0
    answered_prompt_tokens: int = 0
    answered_new_tokens: int = 0
    answered_output_tokens: int = 0
    first_tokens: int = 0
    first_token_seconds: float = 0.0
    gaps: int = 0
    gap_seconds: float = 0.0
    refused: int = 0
    in_flight: int = 0  # at replicas


@dataclass(slots=True)
class VirtualGateway:
    """Requests that wait, and the replicas that take them.

    Args:
        send: Gives a request to a replica's engine at a time.
        shared_tokens: First tokens of each prompt that are always cached.
    """

    send: Callable[[VirtualReplica, EngineSequence, float], None]
    shared_tokens: int = 0
    counts: ReplayCounts = field(default_factory=ReplayCounts)
    replicas: list[VirtualReplica] = field(default_factory=list)
    _ready: list[VirtualReplica] = field(default_factory=list)
    _states: list[ReplicaState] = field(default_factory=list)
    _queue: FairQueue[TraceRequest] = field(
        default_factory=lambda: FairQueue(QUEUED_REQUESTS)
    )
    _expected_output: ExpectedOutput = field(default_factory=ExpectedOutput)
    _sent: dict[int, SentRequest] = field(default_factory=dict)
    _number: int = 0

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a replica."""
        return len(self._queue)

    def list_replicas(self, now: float) -> None:
        """Take note of replicas that have become ready, drain, or have ended."""
        self._ready = [
            replica
            for replica in self.replicas
            if replica.ready_at <= now and not replica.draining
        ]
        self._states = [replica.state for replica in self._ready]
        self.send_waiting(now)

    @property
    def ready(self) -> Sequence[VirtualReplica]:
        """Replicas that take requests."""
        return self._ready

    def arrive(self, request: TraceRequest) -> None:
        """Send a request that arrives, or let it wait."""
        now = request.arrival
        self.counts.arrivals += 1
        if len(self._queue) or not self._try_send(request, now):
            self._wait(request, now)

    def send_waiting(self, now: float) -> None:
        """Send waiting requests as far as replicas are free."""
        self.counts.refused += len(self._queue.expire(now))
        while len(self._queue) and any(_free(self._states)):
            request = self._queue.pop(now)
            if request is None:
                return
            if not self._try_send(request, now):
                self._wait(request, now)
                return

    def _wait(self, request: TraceRequest, now: float) -> None:
        until = request.arrival + DEADLINE_SECONDS
        queued = self._queue.push(
            CALLER, PriorityClass.NORMAL, request.prompt_tokens, request, now, until
        )
        if queued is None:
            self.counts.refused += 1

    def _try_send(self, request: TraceRequest, now: float) -> bool:
        self._number += 1
        choice = pick(
            self._states,
            max(1, request.prompt_tokens - self.shared_tokens),
            request.blocks,
            BLOCK_TOKENS,
            self._expected_output.tokens(None),
            tie=self._number,
            now=now,
        )
        if choice is None:
            return False
        replica = self._ready[self._states.index(choice.replica)]
        sequence = EngineSequence(request, self._number, self.shared_tokens)
        self._sent[sequence.number] = SentRequest(
            replica, choice.new_tokens, request.arrival, now
        )
        state = replica.state
        state.in_flight += 1
        state.pending_tokens += choice.new_tokens
        self.counts.in_flight += 1
        if request.blocks:
            state.index.add(request.blocks)
        self.send(replica, sequence, now)
        return True

    def take_first_token(self, sequence: EngineSequence, seen_at: float) -> float:
        """Learn from a first token that the gateway sees at a time. Return the seconds
        since the arrival of the request."""
        sent = self._sent[sequence.number]
        state = sent.replica.state
        state.pending_tokens -= sent.new_tokens
        state.running += 1
        seconds = seen_at - sent.sent_at
        sent.work = seen_at - max(sent.sent_at, state.first_token_at)
        state.first_token_at = seen_at
        expected = state.rates.prefill_seconds(sent.new_tokens)
        limit = sent.replica.limit
        limit.observe(
            sent.in_flight,
            seconds + LIMIT_SLACK_SECONDS,
            expected + LIMIT_SLACK_SECONDS,
        )
        state.limit = limit.limit
        self.counts.first_tokens += 1
        self.counts.first_token_seconds += seen_at - sent.arrival
        return seen_at - sent.arrival

    def take_end(self, sequence: EngineSequence, now: float) -> None:
        """Learn from an answer that has ended, and release what it held."""
        sent = self._sent.pop(sequence.number)
        request = sequence.request
        state = sent.replica.state
        new_tokens = request.prompt_tokens - sequence.cached_tokens
        state.rates.observe_first_token(new_tokens, sent.work)
        assert sequence.first_token_at is not None
        gaps = request.output_tokens - 1
        if gaps > 0:
            seconds = max(0.0, now - sequence.first_token_at)
            state.rates.observe_itl(state.running, seconds / gaps)
        state.in_flight -= 1
        state.running -= 1
        if request.blocks:
            blocks = round(
                sequence.cached_tokens * len(request.blocks) / request.prompt_tokens
            )
            state.index.correct(request.blocks, blocks)
        self._expected_output.observe(None, request.output_tokens)
        counts = self.counts
        counts.in_flight -= 1
        counts.answered_prompt_tokens += request.prompt_tokens
        counts.answered_new_tokens += new_tokens
        counts.answered_output_tokens += request.output_tokens


def _free(states: Sequence[ReplicaState]) -> Iterator[ReplicaState]:
    """Return the replicas that can take a request now."""
    for state in states:
        if state.limit is None or state.in_flight < state.limit:
            yield state
