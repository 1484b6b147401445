"""Interface of the reader of failed ranks' last lines, outside the head's event
loop."""

from typing import Protocol

from corral.domain.diagnosis import RankEnds
from corral.domain.failure_class import Failure


class LogReader(Protocol):
    async def failure(self, ends: RankEnds) -> Failure | None:
        """Return what the ranks of a gang failed of; None where none of them failed.

        Raises: Trouble when it was not read in time.
        """
        ...
