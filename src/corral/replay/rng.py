"""Random numbers from a seed. Compiled and uncompiled code draw the same numbers."""

from hashlib import blake2b
from typing import Any, Final

from corral.schedule.arrays.compiled import column, compiled

PRIME: Final = 2_147_483_647


def dice_of(seed: int) -> Any:
    """Return a random generator for the seed. Its state is one number from 1 to PRIME -
    1. Neighbouring seeds give sequences that are far apart."""
    return column(1, "int", 1 + (seed * 1_664_525 + 1_013_904_223) % (PRIME - 1))


def dice_named(*words: object) -> Any:
    """Return the random generator for a name, given as words. Different names give
    sequences that are far apart."""
    digest = blake2b(repr(words).encode(), digest_size=8).digest()
    return dice_of(int.from_bytes(digest))


@compiled
def roll(dice: Any) -> float:
    """Return the generator's next random number, uniform between 0 and 1.

    Source: Park and Miller 1988, Random number generators: good ones are hard to find.
    """
    dice[0] = dice[0] * 16_807 % PRIME
    return float(dice[0] / PRIME)
