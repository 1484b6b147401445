"""One rule taken out of the code, as data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """`where` is module:function or module:Class.method below corral; `old` stands
    there once.

    `rules` are the invariants that guard what was taken out: one of them must be
    broken. `seed` is a world in which one is; the search begins there.
    """

    name: str
    where: str
    old: str
    new: str
    rules: str
    seed: int = 0
