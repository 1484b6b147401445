"""Sensitivity of an answer to each assumption, and its range if all of them vary."""

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
    """The answer with one assumption at its low and at its high."""

    name: str
    low: float
    high: float

    @property
    def width(self) -> float:
        return abs(self.high - self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeBand:
    """Range of an outcome: of ten draws, one lies below `low` and one above `high`."""

    low: float
    middle: float
    high: float


def tornado(
    known: Mapping[str, Assumption], answer: Callable[[Values], float]
) -> list[Swing]:
    """Each assumption that is not known for sure, the one that matters most first."""
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
    """All assumptions at once, each between its low and its high.

    A Latin hypercube: of each assumption every one of `count` equally likely slices is
    drawn from once, which steadies the bands as far as the assumptions add up. The same
    seed draws the same.
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
    """The value that so large a share of what it may be lies below: half of it below
    the usual value and half above, rarer towards the low and the high in a straight
    line."""
    if share <= 0.5:
        return one.low + (one.value - one.low) * sqrt(2 * share)
    return one.high - (one.high - one.value) * sqrt(2 * (1 - share))


def band(values: Sequence[float]) -> OutcomeBand:
    """Raises: IndexError where there are none."""
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
