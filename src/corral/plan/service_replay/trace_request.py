"""Requests of a trace."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BLOCK_TOKENS: Final = 512  # of a prompt, in a block of the traces' hash ids


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """Request of a trace.

    Attributes:
        arrival: seconds since the first request of the trace.
        prompt_tokens: tokens of the prompt.
        output_tokens: tokens of the answer.
        blocks: hash ids of the prompt's blocks of `BLOCK_TOKENS` tokens; two prompts with
            equal leading ids have equal leading blocks. Empty: not in the trace.
    """

    arrival: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.arrival < 0 or min(self.prompt_tokens, self.output_tokens) < 1:
            raise ValueError(f"a request arrives and has tokens: {self}")

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """Means of a trace.

    Attributes:
        requests: number of requests.
        seconds: time from the first arrival to the last; at least 1.
        longest: most tokens of one request, prompt and answer together.
        has_blocks: whether any prompt has hash ids.
    """

    requests: int
    seconds: float
    prompt_tokens: float
    output_tokens: float
    longest: int
    has_blocks: bool

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds


def summary_of(requests: Sequence[TraceRequest]) -> TraceSummary:
    """Return the means of a trace, whose requests are in the order of their arrival.

    Raises: ValueError without a request.
    """
    if not requests:
        raise ValueError("a trace has at least one request")
    count = len(requests)
    return TraceSummary(
        requests=count,
        seconds=max(1.0, requests[-1].arrival - requests[0].arrival),
        prompt_tokens=sum(request.prompt_tokens for request in requests) / count,
        output_tokens=sum(request.output_tokens for request in requests) / count,
        longest=max(request.tokens for request in requests),
        has_blocks=any(request.blocks for request in requests),
    )
