"""Outcome of a replayed trace."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from corral.plan.service_replay.batching_engine import TokenGaps
from corral.plan.service_replay.virtual_scaler import ScaleEvent

HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class ReplicaSample:
    """Replicas at one second of the replay."""

    at: float
    wanted: int
    ready: int
    waiting: int  # requests in the gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOutcome:
    """Outcome of a trace.

    Attributes:
        requests: requests of the trace.
        refused: requests for which no replica became free within their deadline.
        too_long: requests with more tokens than a replica can hold; also refused.
        ttft: seconds to the first token of each answered request, ascending.
        gaps: times between tokens, ascending.
        samples: replicas at each second up to the last arrival.
        events: changes of the number of replicas, and their reasons.
        seconds: time from the first arrival to the last.
        replica_seconds: seconds for which replicas had their GPUs, up to that time.
        busy_seconds: seconds in which engines worked.
        longest_wait: most requests that waited in the gateway at one time.
        hit_share: share of the prompts' tokens that were cached.
        imbalance: work of the busiest replica over the mean; 1 without work.
    """

    requests: int
    refused: int
    too_long: int
    prompt_tokens: int
    output_tokens: int
    ttft: Sequence[float] = field(repr=False)
    gaps: Sequence[TokenGaps] = field(repr=False)
    samples: Sequence[ReplicaSample] = field(repr=False)
    events: Sequence[ScaleEvent] = field(repr=False)
    seconds: float
    replica_seconds: float
    busy_seconds: float
    longest_wait: int
    hit_share: float
    imbalance: float

    @property
    def answered(self) -> int:
        return len(self.ttft)

    @property
    def mean_replicas(self) -> float:
        """Mean number of replicas that had their GPUs."""
        return self.replica_seconds / self.seconds

    @property
    def most_replicas(self) -> int:
        """Most replicas that were wanted at one time."""
        return max((sample.wanted for sample in self.samples), default=0)

    @property
    def busy_share(self) -> float:
        """Share of the replicas' time in which they worked, at most 1."""
        if not self.replica_seconds:
            return 0.0
        return min(1.0, self.busy_seconds / self.replica_seconds)

    @property
    def turns(self) -> int:
        """Changes of direction of the number of replicas."""
        directions = [event.wanted > event.before for event in self.events]
        return sum(
            first != second
            for first, second in zip(directions, directions[1:], strict=False)
        )

    def ttft_quantile(self, share: float) -> float:
        """Return the seconds to the first token that this share of the answered requests
        keeps; infinite without an answer."""
        if not self.ttft:
            return inf
        return self.ttft[min(len(self.ttft) - 1, int(share * len(self.ttft)))]

    def itl_quantile(self, share: float) -> float | None:
        """Return the seconds between tokens that this share of the tokens keeps; None
        if no answer has two tokens."""
        rank = share * sum(gap.tokens for gap in self.gaps)
        below = 0
        for gap in self.gaps:
            below += gap.tokens
            if below >= rank:
                return gap.seconds
        return None

    def late_share(self, ttft_seconds: float) -> float:
        """Return the share of all requests whose first token came later than this, or
        never."""
        late = sum(seconds > ttft_seconds for seconds in self.ttft)
        return (late + self.requests - self.answered) / self.requests

    def slow_share(self, itl_seconds: float) -> float:
        """Return the share of the tokens that came later than this after the one
        before."""
        total = sum(gap.tokens for gap in self.gaps)
        slow = sum(gap.tokens for gap in self.gaps if gap.seconds > itl_seconds)
        return slow / total if total else 0.0

    @property
    def mixed_share(self) -> float:
        """Share of the tokens whose step also computed a part of a prompt."""
        total = sum(gap.tokens for gap in self.gaps)
        mixed = sum(gap.tokens for gap in self.gaps if gap.seconds > gap.decode_seconds)
        return mixed / total if total else 0.0


def merged_gaps(gaps: Iterable[TokenGaps]) -> list[TokenGaps]:
    """Return the gaps in ascending order; those of equal seconds are added."""
    tokens: dict[tuple[float, float], int] = {}
    for gap in gaps:
        key = (gap.seconds, gap.decode_seconds)
        tokens[key] = tokens.get(key, 0) + gap.tokens
    return [
        TokenGaps(seconds, count, decode)
        for (seconds, decode), count in sorted(tokens.items())
    ]
