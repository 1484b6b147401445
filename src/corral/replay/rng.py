"""Chance from a seed: the same draws with and without compiling."""

from hashlib import blake2b
from typing import Any, Final

from corral.schedule.arrays.compiled import column, compiled

PRIME: Final = 2_147_483_647


def dice_of(seed: int) -> Any:
    """Dice of one row, 1 to PRIME - 1; seeds near to each other give rows far apart."""
    return column(1, "int", 1 + (seed * 1_664_525 + 1_013_904_223) % (PRIME - 1))


def dice_named(*words: object) -> Any:
    """Dice of its own for each name, far from those of any other."""
    digest = blake2b(repr(words).encode(), digest_size=8).digest()
    return dice_of(int.from_bytes(digest))


@compiled
def roll(dice: Any) -> float:
    """A uniform draw between 0 and 1.

    Source: Park and Miller 1988, Random number generators: good ones are hard to find.
    """
    dice[0] = dice[0] * 16_807 % PRIME
    return float(dice[0] / PRIME)
