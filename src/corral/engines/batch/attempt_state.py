"""State of one attempt in a batch system. The module holds rules only, no I/O."""

from dataclasses import dataclass
from typing import Final

from corral.domain.observed_state import AttemptKey
from corral.engines.batch.interfaces import Ticket, TicketState

MISSED_LOOKS: Final = 2  # a ticket that was not there this often is not there


@dataclass(slots=True, kw_only=True)
class BatchAttemptState:
    """State of an attempt in the batch system. `ticket` is the batch system's newest
    report on it. `missed` is the number of polls since then that did not list the
    attempt. `refusal` is why the batch system will never accept the attempt."""

    key: AttemptKey
    submitted: bool = False
    ticket: Ticket | None = None
    missed: int = 0
    refusal: str = ""

    @property
    def is_gone(self) -> bool:
        """Return whether the batch system holds nothing of the attempt any more."""
        if self.ticket is not None:
            return self.ticket.state == TicketState.ENDED
        return self.submitted and self.missed >= MISSED_LOOKS
