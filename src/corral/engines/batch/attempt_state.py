"""State of one attempt in a batch system. Rules only, no I/O."""

from dataclasses import dataclass
from typing import Final

from corral.domain.observed_state import AttemptKey
from corral.engines.batch.interfaces import Ticket, TicketState

MISSED_LOOKS: Final = 2  # a ticket that was not there this often is not there


@dataclass(slots=True, kw_only=True)
class BatchAttemptState:
    """`ticket`: its newest one. `missed`: looks since that have shown none. `refusal`:
    why the batch system will not take it."""

    key: AttemptKey
    submitted: bool = False
    ticket: Ticket | None = None
    missed: int = 0
    refusal: str = ""

    @property
    def is_gone(self) -> bool:
        """Whether the batch system has nothing of it any more."""
        if self.ticket is not None:
            return self.ticket.state == TicketState.ENDED
        return self.submitted and self.missed >= MISSED_LOOKS
