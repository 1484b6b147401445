"""Quantile of sorted numbers."""

from collections.abc import Sequence


def quantile(ranked: Sequence[float], share: float) -> float:
    """Return the quantile, interpolated linearly between the two nearest ranks, like
    numpy's default."""
    fractional_rank = share * (len(ranked) - 1)
    lower_index = int(fractional_rank)
    upper_index = min(lower_index + 1, len(ranked) - 1)
    return ranked[lower_index] + (ranked[upper_index] - ranked[lower_index]) * (
        fractional_rank - lower_index
    )
