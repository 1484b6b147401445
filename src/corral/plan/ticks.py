"""Tick marks of an axis: round numbers, at equal steps or at powers of ten."""

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_SHORT: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SMALLEST: Final = 1e-300  # an axis is longer: a step of it is a number, too
MOST_DECADES: Final = 8  # beyond, every second power or fewer is marked


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis from its lowest to its highest value; on a logarithmic axis both are above
    0."""

    low: float
    high: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return the position of a value, from 0 at the low end to 1."""
        if self.is_log:
            return log10(max(value, self.low) / self.low) / log10(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def marks(self, most: int = 6) -> list[float]:
        if self.is_log:
            first_power, last_power = (
                ceil(log10(self.low) - 1e-9),
                floor(log10(self.high) + 1e-9),
            )
            step = max(1, ceil((last_power - first_power + 1) / MOST_DECADES))
            return [10.0**power for power in range(first_power, last_power + 1, step)]
        apart = _round_step_up((self.high - self.low) / most)
        lowest = ceil(self.low / apart - 1e-9)
        return [
            multiple * apart
            for multiple in range(lowest, floor(self.high / apart + 1e-9) + 1)
        ]


def axis_of(values: list[float], *, is_log: bool) -> Axis:
    """Return an axis that covers all values. A linear axis begins at 0 if no value is
    negative."""
    if is_log:
        above = [value for value in values if value > 0] or [1.0]
        lower_bound, upper_bound = (
            10.0 ** floor(log10(min(above))),
            10.0 ** ceil(log10(max(above))),
        )
        return Axis(
            lower_bound,
            upper_bound if upper_bound > lower_bound else lower_bound * 10.0,
            is_log=True,
        )
    lower_bound, upper_bound = min([0.0, *values]), max(values, default=1.0)
    if upper_bound - lower_bound < SMALLEST:
        upper_bound = lower_bound + 1.0
    step = _round_step_up((upper_bound - lower_bound) / 5)
    return Axis(
        floor(lower_bound / step) * step, ceil(upper_bound / step - 1e-9) * step
    )


def _round_step_up(about: float) -> float:
    """Return the next round number that is not below `about`."""
    power = 10.0 ** floor(log10(about))
    return next(step * power for step in _STEPS if step * power >= about * (1 - 1e-9))


def mark_text(value: float) -> str:
    """Return a short label of a tick mark: 0.25, 12, 4k, 1.5M."""
    for size, letter in _SHORT:
        if abs(value) >= size * (10 if letter == "k" else 1):
            return f"{value / size:.4g}{letter}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def number_text(value: float) -> str:
    """Return a number for a table, with at least three digits if it is not whole."""
    if (
        isinstance(value, int)
        or value == 0
        or (abs(value) >= 100 and value == round(value))
    ):
        return f"{value:,.0f}"
    if not 1e-3 <= abs(value) < 1e15:
        return f"{value:.3g}"
    for below, places in ((1, 3), (10, 2), (100, 1)):
        if round(abs(value), places) < below:
            return f"{value:,.{places}f}"
    return f"{value:,.0f}"
