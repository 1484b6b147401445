"""Ends of an attempt's ranks with their last output, and the failure that was
recognized in that output."""

from dataclasses import dataclass
from typing import Final

from corral.domain.attempt import Exit
from corral.domain.failure_class import Failure
from corral.domain.ids import NodeId

# between the last error and the end of a log
GAP: Final = "[corral] lines are left out here\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """A rank and its end. `exit` is None if the rank had not ended when the others
    failed. `is_late`: it was stopped at the time limit of its job."""

    rank: int
    node: NodeId
    exit: Exit | None
    tail: str = ""
    is_late: bool = False


RankEnds = tuple[RankEnd, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Result of reading an attempt's last lines of output.

    Args:
        ends: The ends of ranks that were read.
        failure: The failure; None if no rank failed, or if the failure is not yet
            known.
        is_last: Whether later ends of the attempt are not read any more.
    """

    ends: RankEnds
    failure: Failure | None
    is_last: bool = False

    def covers(self, ends: RankEnds) -> bool:
        """Return whether there is nothing more to read for these ends."""
        return self.is_last or self.ends == ends
