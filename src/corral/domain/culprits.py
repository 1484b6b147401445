"""Test of whether a failure is blamed on processes of the attempt itself, rather than
on a node or device."""

from typing import Final

# a process of the attempt reported it on the rank protocol
OWN_PROGRAM: Final = "its own program"
RANK: Final = "rank "  # "rank 3 on n2": by the rank's exit code, or by what it printed


def is_own(culprit: str) -> bool:
    """Return whether the culprit is a rank or the job's program, not a node or a device
    of the cluster."""
    return culprit == OWN_PROGRAM or is_rank(culprit)


def is_rank(culprit: str) -> bool:
    """Return whether the text names a rank as the culprit."""
    return culprit.startswith(RANK)
