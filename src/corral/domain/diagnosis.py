"""Ends of an attempt's ranks with what they printed last, and the failure that was read
there."""

from dataclasses import dataclass
from typing import Final

from corral.domain.attempt import Exit
from corral.domain.failure_class import Failure
from corral.domain.ids import NodeId

# between the last error and the end of a log
GAP: Final = "[corral] lines are left out here\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """A rank and how it ended; `exit` None: it had not when the others failed.
    `is_late`: it was stopped at the time limit of its job."""

    rank: int
    node: NodeId
    exit: Exit | None
    tail: str = ""
    is_late: bool = False


RankEnds = tuple[RankEnd, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Result of reading an attempt's last lines.

    Args:
        ends: the ends that were read.
        failure: None where no rank failed, or where it is not known yet.
        is_last: later ends of the attempt are not read any more.
    """

    ends: RankEnds
    failure: Failure | None
    is_last: bool = False

    def covers(self, ends: RankEnds) -> bool:
        """Return whether there is nothing more to read for these ends."""
        return self.is_last or self.ends == ends
