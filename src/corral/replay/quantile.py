"""A quantile of ranked numbers."""

from collections.abc import Sequence


def quantile(ranked: Sequence[float], share: float) -> float:
    """Linear between the two nearest ranks, as numpy's default is."""
    at = share * (len(ranked) - 1)
    low = int(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (at - low)
