"""Sensitivity of an answer: how it changes with each assumption alone, and its range if
all assumptions vary."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

from corral.catalog.economics import Assumption
from corral.replay.quantile import quantile
from corral.replay.rng import dice_of, roll

DRAWS: Final = 1_000
Values = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """The answer with one assumption at its low value and at its high value, the others
    unchanged."""

    name: str
    low: float
    high: float

    @property
    def width(self) -> float:
        return abs(self.high - self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeBand:
    """Range of an outcome over random draws: one tenth of the draws lies below `low`,
    and one tenth above `high`."""

    low: float
    middle: float
    high: float


def tornado(
    known: Mapping[str, Assumption], answer: Callable[[Values], float]
) -> list[Swing]:
    """Return how the answer changes with each uncertain assumption alone, the largest
    change first."""
    base = {name: assumption.value for name, assumption in known.items()}
    swings = (
        Swing(
            name=name,
            low=answer(base | {name: assumption.low}),
            high=answer(base | {name: assumption.high}),
        )
        for name, assumption in known.items()
        if not assumption.is_known
    )
    return sorted(
        (swing for swing in swings if swing.width), key=lambda swing: -swing.width
    )


def draws(
    known: Mapping[str, Assumption], count: int = DRAWS, seed: int = 0
) -> Iterator[Values]:
    """Yield random draws of all assumptions at once, each between its low and its high
    value.

    The draws form a Latin hypercube: the range of an assumption is split into `count`
    equally likely slices, and each slice is drawn from once. This steadies the bands as
    far as the effects of the assumptions add up. The same seed gives the same draws.

    Source: McKay, Beckman and Conover 1979.
    """
    dice = dice_of(seed)
    free_assumptions = [
        assumption for assumption in known.values() if not assumption.is_known
    ]
    slices = [_shuffle_indices(count, dice) for _ in free_assumptions]
    base_values = {name: assumption.value for name, assumption in known.items()}
    for draw_index in range(count):
        yield base_values | {
            assumption.name: spread(
                assumption, (own_slice[draw_index] + roll(dice)) / count
            )
            for assumption, own_slice in zip(free_assumptions, slices, strict=True)
        }


def spread(one: Assumption, share: float) -> float:
    """Return the value of an assumption below which the fraction `share` of its
    distribution lies. Half of the distribution lies below the usual value and half
    above; the density falls in a straight line towards the low and the high value."""
    if share <= 0.5:
        return one.low + (one.value - one.low) * sqrt(2 * share)
    return one.high - (one.high - one.value) * sqrt(2 * (1 - share))


def band(values: Sequence[float]) -> OutcomeBand:
    """Return the range of the values. Raises: IndexError if there are no values."""
    ranked = sorted(values)
    return OutcomeBand(
        low=quantile(ranked, 0.1),
        middle=quantile(ranked, 0.5),
        high=quantile(ranked, 0.9),
    )


def _shuffle_indices(count: int, dice: object) -> list[int]:
    order = list(range(count))
    for last_index in range(count - 1, 0, -1):
        swap_index = min(last_index, int(roll(dice) * (last_index + 1)))
        order[last_index], order[swap_index] = order[swap_index], order[last_index]
    return order
