"""Interface of the log reader, which diagnoses why ranks failed from their last lines.
It runs outside the head's event loop."""

from typing import Protocol

from corral.domain.diagnosis import RankEnds
from corral.domain.failure_class import Failure


class LogReader(Protocol):
    async def failure(self, ends: RankEnds) -> Failure | None:
        """Return why the ranks of a gang failed; None if none of them failed.

        Raises: Trouble when the lines were not read in time.
        """
        ...
