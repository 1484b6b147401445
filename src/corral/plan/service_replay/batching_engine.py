"""Engine of one replica in virtual time: continuous batching with chunked prefill."""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from math import ceil
from typing import Final, NamedTuple, Protocol

from corral.perf.serving import BatchLimits
from corral.plan.service_replay.prefix_cache import PrefixCache
from corral.plan.service_replay.trace_request import BLOCK_TOKENS, TraceRequest

ROUNDING: Final = 1e-9


class EngineSteps(Protocol):
    """Source of the times of an engine's steps, in seconds."""

    def decode_seconds(self, running: int, context: float) -> float: ...

    def mixed_seconds(
        self,
        prompt: int,
        prompt_context: float,
        ends: int,
        running: int,
        context: float,
    ) -> float: ...


class EngineSequence:
    """Request at an engine.

    Attributes:
        cached_tokens: tokens of its prompt that were cached when its prefill began.
        first_token_at: time of its first token; None before it.
    """

    __slots__ = (
        "cached_tokens",
        "end_step",
        "first_token_at",
        "number",
        "remaining_tokens",
        "request",
        "shared_tokens",
    )

    def __init__(
        self, request: TraceRequest, number: int, shared_tokens: int = 0
    ) -> None:
        self.request = request
        self.number = number
        self.shared_tokens = shared_tokens
        self.cached_tokens = 0
        self.remaining_tokens = request.prompt_tokens
        self.end_step = 0
        self.first_token_at: float | None = None

    def __lt__(self, other: "EngineSequence") -> bool:
        return (self.end_step, self.number) < (other.end_step, other.number)


class TokenGaps(NamedTuple):
    """Tokens that came `seconds` after the one before. `decode_seconds`: the time
    without prompts in the same step."""

    seconds: float
    tokens: int
    decode_seconds: float


class EngineNews(NamedTuple):
    """Events at the end of a span of steps."""

    first_tokens: Sequence[EngineSequence]
    finished: Sequence[EngineSequence]
    gaps: TokenGaps | None


class _Span(NamedTuple):
    """Equal steps. `parts`: prompts that are computed in them, and their tokens."""

    begun_at: float
    step_seconds: float
    steps: int
    parts: tuple[tuple[EngineSequence, int], ...]
    decode_seconds: float

    @property
    def ends_at(self) -> float:
        return self.begun_at + self.steps * self.step_seconds


class BatchingEngine:
    """Engine that adds waiting prompts to the steps of running requests, in order of
    their arrival, as far as the limits of a step allow.

    A request is admitted once its whole context fits in the cache, so that none is
    preempted. The caller calls `finish_span` at `next_at`, and reads that time again
    after each call.

    Args:
        cache_tokens: tokens whose keys and values fit in the replica's memory.
    """

    __slots__ = (
        "_cache",
        "_context",
        "_limits",
        "_places",
        "_prefilling",
        "_running",
        "_span",
        "_step",
        "_steps",
        "_tokens",
        "_waiting",
        "busy_seconds",
        "cache_tokens",
    )

    def __init__(
        self, times: EngineSteps, limits: BatchLimits, cache_tokens: int
    ) -> None:
        self.cache_tokens = cache_tokens
        self.busy_seconds = 0.0
        self._steps = times
        self._limits = limits
        self._cache = PrefixCache(cache_tokens // BLOCK_TOKENS)
        self._waiting: deque[EngineSequence] = deque()
        self._prefilling: deque[EngineSequence] = deque()
        self._running: list[EngineSequence] = []
        self._context = 0  # tokens of the running sequences
        self._tokens = 0  # reserved by admitted sequences
        self._places = 0
        self._step = 0
        self._span: _Span | None = None

    @property
    def next_at(self) -> float | None:
        """Time at which the present span of steps ends; None: the engine is idle."""
        return None if self._span is None else self._span.ends_at

    @property
    def is_idle(self) -> bool:
        return self._span is None

    def submit(self, sequence: EngineSequence, now: float) -> None:
        """Add a request. It waits for the end of the step that runs.

        Raises: ValueError if the request can never fit.
        """
        if sequence.request.tokens > self.cache_tokens:
            raise ValueError(f"the cache has {self.cache_tokens} tokens: {sequence}")
        self._waiting.append(sequence)
        span = self._span
        if span is None:
            self._begin_span(now)
        elif not span.parts and span.steps > 1:
            begun = (now - span.begun_at) / span.step_seconds - ROUNDING
            steps = min(span.steps, max(1, ceil(begun)))
            self._span = span._replace(steps=steps)

    def finish_span(self) -> EngineNews:
        """End the present span of steps, and begin the next one."""
        span = self._span
        assert span is not None
        now = span.ends_at
        self.busy_seconds += now - span.begun_at
        running = len(self._running)
        self._step += span.steps
        self._context += span.steps * running
        gaps = None
        if running:
            gaps = TokenGaps(
                span.step_seconds, span.steps * running, span.decode_seconds
            )
        finished = []
        while self._running and self._running[0].end_step <= self._step:
            sequence = heappop(self._running)
            self._leave(sequence)
            self._context -= sequence.request.tokens
            finished.append(sequence)
        first_tokens = self._end_prompts(span, now)
        finished += [
            sequence for sequence in first_tokens if sequence.request.output_tokens <= 1
        ]
        self._begin_span(now)
        return EngineNews(first_tokens, finished, gaps)

    def _end_prompts(self, span: _Span, now: float) -> list[EngineSequence]:
        """Return the sequences whose prompts have been computed; they run from now on."""
        first_tokens = []
        for sequence, tokens in span.parts:
            sequence.remaining_tokens -= tokens
            if sequence.remaining_tokens:
                continue
            self._prefilling.popleft()
            sequence.first_token_at = now
            first_tokens.append(sequence)
            output = sequence.request.output_tokens
            if output <= 1:
                self._leave(sequence)
                continue
            sequence.end_step = self._step + output - 1
            self._context += sequence.request.prompt_tokens + 1
            heappush(self._running, sequence)
        return first_tokens

    def _leave(self, sequence: EngineSequence) -> None:
        self._tokens -= sequence.request.tokens
        self._places -= 1

    def _begin_span(self, now: float) -> None:
        running = len(self._running)
        context = self._context / running if running else 0.0
        decode = self._steps.decode_seconds(running, context) if running else 0.0
        parts, prompt_context = self._next_parts(running)
        if parts:
            tokens = sum(tokens for _, tokens in parts)
            ends = sum(
                tokens == sequence.remaining_tokens for sequence, tokens in parts
            )
            seconds = self._steps.mixed_seconds(
                tokens, prompt_context / tokens, ends, running, context
            )
            self._span = _Span(now, seconds, 1, parts, decode)
        elif running:
            steps = self._running[0].end_step - self._step
            self._span = _Span(now, decode, steps, (), decode)
        else:
            self._span = None

    def _next_parts(
        self, running: int
    ) -> tuple[tuple[tuple[EngineSequence, int], ...], float]:
        """Return the parts of prompts in the next step, and the sum over their tokens of
        the tokens that each attends to."""
        budget = self._limits.tokens - running
        parts = []
        attended = 0.0
        position = 0
        while budget > 0:
            if position == len(self._prefilling) and not self._admit():
                break
            sequence = self._prefilling[position]
            tokens = min(budget, sequence.remaining_tokens)
            done = sequence.request.prompt_tokens - sequence.remaining_tokens
            attended += tokens * (done + tokens / 2)
            parts.append((sequence, tokens))
            budget -= tokens
            position += 1
        return tuple(parts), attended

    def _admit(self) -> bool:
        """Move the next waiting request to those in prefill; False if none may."""
        if not self._waiting or self._places >= self._limits.sequences:
            return False
        sequence = self._waiting[0]
        request = sequence.request
        if self._tokens + request.tokens > self.cache_tokens:
            return False
        self._waiting.popleft()
        self._prefilling.append(sequence)
        self._places += 1
        self._tokens += request.tokens
        cached = self._cache.prefill(request.blocks) * BLOCK_TOKENS
        cached = max(cached, sequence.shared_tokens)
        sequence.cached_tokens = min(cached, request.prompt_tokens - 1)
        sequence.remaining_tokens = request.prompt_tokens - sequence.cached_tokens
        return True
