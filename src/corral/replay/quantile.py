"""A quantile of ranked numbers."""

from collections.abc import Sequence


def quantile(ranked: Sequence[float], share: float) -> float:
    """Linear between the two nearest ranks, as numpy's default is."""
    fractional_rank = share * (len(ranked) - 1)
    lower_index = int(fractional_rank)
    upper_index = min(lower_index + 1, len(ranked) - 1)
    return ranked[lower_index] + (ranked[upper_index] - ranked[lower_index]) * (
        fractional_rank - lower_index
    )
