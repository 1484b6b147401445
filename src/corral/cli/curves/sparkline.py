"""A curve drawn as one line of text."""

from collections.abc import Sequence
from typing import Final

from corral.domain.units import share_text, size_text

BLOCKS: Final = "▁▂▃▄▅▆▇█"
UNKNOWN: Final = " "
WHOLE: Final = ("W", "C")  # units whose parts are noise
LEAST_SPAN: Final = 0.05  # of the most: what varies less is drawn as flat as it is
Value = float | None


def sparkline(
    values: Sequence[Value],
    width: int,
    *,
    low: float | None = None,
    high: float | None = None,
) -> str:
    """Return a line of at most `width` characters that draws the values. The lowest
    block stands for `low` and the highest for `high`; a blank stands for an unknown
    value.

    By default `low` and `high` are the smallest and the largest value, at least a
    twentieth apart.
    """
    drawn = narrowed(values, width)
    known_values = [value for value in drawn if value is not None]
    if not known_values:
        return UNKNOWN * len(drawn)
    top = max(known_values) if high is None else high
    bottom = min(*known_values, top - LEAST_SPAN * abs(top)) if low is None else low
    return "".join(
        UNKNOWN if value is None else _block_character(value, bottom, top)
        for value in drawn
    )


def _block_character(value: float, low: float, high: float) -> str:
    scale_fraction = (value - low) / (high - low) if high > low else 0.0
    return BLOCKS[min(len(BLOCKS) - 1, max(0, int(scale_fraction * len(BLOCKS))))]


def narrowed(values: Sequence[Value], width: int) -> list[Value]:
    """Divide the values into `width` parts of about equal length, and return the mean
    of each part.

    If there are at most `width` values, return them unchanged.

    Raises: ValueError on a width below 1.
    """
    if width < 1:
        raise ValueError(f"a line has at least one character: {width}")
    count = len(values)
    if count <= width:
        return list(values)
    edges = [count * edge_index // width for edge_index in range(width + 1)]
    return [
        mean(values[start_index:end_index])
        for start_index, end_index in zip(edges, edges[1:], strict=False)
    ]


def mean(values: Sequence[Value]) -> Value:
    """Return the mean of the known values; None if there are no known values."""
    known_values = [value for value in values if value is not None]
    return sum(known_values) / len(known_values) if known_values else None


def value_text(value: Value, unit: str) -> str:
    """Return a value as the text of a column.

    A value with the unit `share` is from 0 to 1, and is shown as a percentage.
    """
    if value is None:
        return "-"
    if unit == "share":
        return share_text(value)
    if unit == "bytes/s":
        return f"{size_text(round(value))}/s"
    if unit in WHOLE or (abs(value) >= 1000 and value == round(value)):
        return f"{value:.0f}"
    return f"{value:.4g}"
