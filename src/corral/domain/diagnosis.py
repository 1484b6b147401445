"""Ends of an attempt's ranks with their last output, and the failure that was
recognized in that output."""

from dataclasses import dataclass
from typing import Final

from corral.domain.attempt import Exit
from corral.domain.failure_class import Failure
from corral.domain.ids import NodeId

# between the last error and the end of a log
GAP: Final = "[corral] lines are left out here\n"
# between the errors of processes that share a log and the end of the log
LEFT_OUT: Final = "[corral] lines of other processes are left out here\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """End of one rank. `exit` is None if the rank was still running when the others
    failed. `is_late`: it was stopped at the time limit of its job. `tail` is the end of
    its output."""

    rank: int
    node: NodeId
    exit: Exit | None
    tail: str = ""
    is_late: bool = False


RankEnds = tuple[RankEnd, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Result of reading the last output lines of an attempt's ranks.

    Args:
        ends: The ends of ranks whose output was read.
        failure: The failure; None if no rank failed, or if the failure is not yet
            known.
        is_last: Whether the output is not read again if more ranks end later.
    """

    ends: RankEnds
    failure: Failure | None
    is_last: bool = False

    def covers(self, ends: RankEnds) -> bool:
        """Return whether these ends were read, or no further reading is planned."""
        return self.is_last or self.ends == ends
