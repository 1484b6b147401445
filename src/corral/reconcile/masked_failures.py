"""Attempts whose ranks all ended with 0: whether one of them may have failed
nevertheless."""

from collections.abc import Iterable
from dataclasses import dataclass

from corral.domain.attempt import Exit


@dataclass(frozen=True, slots=True)
class Doubt:
    """`reason`: a sentence for everybody who sees the job; `quote`: the error, for
    those who may read its log. Both are "" where there is no doubt."""

    reason: str = ""
    quote: str = ""


def doubt_of(exits: Iterable[tuple[int, Exit]]) -> Doubt:
    """Return the doubt about the first rank in whose output a program ended in an
    error."""
    doubtful = {rank: exit for rank, exit in exits if exit.ends_in_error}
    if not doubtful:
        return Doubt()
    rank = min(doubtful)
    reason = (
        f"a program of rank {rank} ended in an error, and its script went on to exit code 0 "
        "(put set -e into the script, and set -o pipefail before a pipe)"
    )
    return Doubt(reason, doubtful[rank].error)
