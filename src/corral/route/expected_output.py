"""Expected length of an answer, learned from earlier answers of the service."""

from typing import Final

DECAY: Final = 0.98
PRIOR_WEIGHT: Final = 2.0  # answers that the mean of all counts for in an empty bucket
BUCKETS: Final = 33  # powers of two of `max_tokens`; the last: not given


class ExpectedOutput:
    """Mean number of tokens of an answer, by the power of two of `max_tokens`."""

    __slots__ = ("_tokens", "_total_tokens", "_total_weight", "_weights")

    def __init__(self, initial_tokens: float = 256.0) -> None:
        if initial_tokens <= 0:
            raise ValueError(f"an answer has tokens: {initial_tokens}")
        self._tokens = [0.0] * BUCKETS
        self._weights = [0.0] * BUCKETS
        self._total_tokens = PRIOR_WEIGHT * initial_tokens
        self._total_weight = PRIOR_WEIGHT

    def observe(self, max_tokens: int | None, tokens: int) -> None:
        """Learn from an answer that ended."""
        bucket = _bucket_of(max_tokens)
        self._tokens[bucket] = DECAY * self._tokens[bucket] + tokens
        self._weights[bucket] = DECAY * self._weights[bucket] + 1.0
        self._total_tokens = DECAY * self._total_tokens + tokens
        self._total_weight = DECAY * self._total_weight + 1.0

    def tokens(self, max_tokens: int | None) -> float:
        """Return the expected tokens of an answer, at most `max_tokens`."""
        bucket = _bucket_of(max_tokens)
        overall = self._total_tokens / self._total_weight
        weight = self._weights[bucket]
        prior = max(0.0, PRIOR_WEIGHT - weight / 10.0)
        mean = (self._tokens[bucket] + prior * overall) / (weight + prior)
        return mean if max_tokens is None else min(mean, float(max(max_tokens, 0)))


def _bucket_of(max_tokens: int | None) -> int:
    if max_tokens is None:
        return BUCKETS - 1
    return min(max(max_tokens, 0).bit_length(), BUCKETS - 2)
