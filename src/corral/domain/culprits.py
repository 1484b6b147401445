"""Culprits of an attempt's end that are processes of the attempt itself."""

from typing import Final

# a process of the attempt reported it on the rank protocol
OWN_PROGRAM: Final = "its own program"
RANK: Final = "rank "  # "rank 3 on n2": by the rank's exit code, or by what it printed


def is_own(culprit: str) -> bool:
    """Return whether only the attempt's own processes report why it ended."""
    return culprit == OWN_PROGRAM or is_rank(culprit)


def is_rank(culprit: str) -> bool:
    """Return whether the culprit is a rank."""
    return culprit.startswith(RANK)
