"""A restart in place of which it is not decided yet who pays."""

from dataclasses import dataclass

from corral.domain.attempt import Attempt
from corral.domain.receipt import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpaidRestart:
    """A restart in place whose retry budget is not decided yet: a fault of a node may
    still explain the failure (0167).

    Args:
        attempt: The failed attempt, charged to the user by what is known so far.
        receipt: Its receipt, which gets the cause that is found.
        since: When the failure was seen, in seconds since 1970.
    """

    attempt: Attempt
    receipt: Receipt
    since: float
