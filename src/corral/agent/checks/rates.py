"""Formatting of rates as text."""

from corral.domain.units import size_text


def rate_text(bytes_per_second: float) -> str:
    """Format a rate. For example: 3.01 TB/s."""
    return f"{size_text(int(bytes_per_second))}/s"
