"""Attempts whose ranks all ended with exit code 0, although one of them may have
failed."""

from collections.abc import Iterable
from dataclasses import dataclass

from corral.domain.attempt import Exit


@dataclass(frozen=True, slots=True)
class Doubt:
    """Sign that a rank failed although it exited with code 0. `reason`: a sentence for
    all users who see the job; `quote`: the error, for users who may read its log. Both
    are "" if there is no sign."""

    reason: str = ""
    quote: str = ""


def doubt_of(exits: Iterable[tuple[int, Exit]]) -> Doubt:
    """Return the sign of a failure for the first rank whose output shows an error; an
    empty one without any."""
    doubtful = {rank: exit for rank, exit in exits if exit.ends_in_error}
    if not doubtful:
        return Doubt()
    rank = min(doubtful)
    reason = (
        f"a program of rank {rank} ended in an error, and its script went on to exit code 0 "
        "(put set -e into the script, and set -o pipefail before a pipe)"
    )
    return Doubt(reason, doubtful[rank].error)
