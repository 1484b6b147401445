"""Attempts whose ranks all ended with exit code 0, although one of them may have
failed."""

from collections.abc import Iterable
from dataclasses import dataclass

from corral.domain.attempt import Exit


@dataclass(frozen=True, slots=True)
class Doubt:
    """A sign that a rank failed although its exit code is 0. `reason` is a sentence for
    all users who see the job. `quote` is the error, for users who may read its log.
    Both are "" if there is no such sign."""

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
        f"a program of rank {rank} failed, but its script went on and ended with exit code "
        "0 (add set -e to the script, and set -o pipefail for pipes)"
    )
    return Doubt(reason, doubtful[rank].error)
