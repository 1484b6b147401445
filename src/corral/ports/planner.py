"""Seam of what makes plans, aside from the head's loop."""

from typing import Protocol

from corral.domain.ids import UserName
from corral.domain.quota import RateUse


class Planner(Protocol):
    def seconds_of(self, user: UserName) -> RateUse:
        """Return the seconds of planning that the user has had lately, and may have."""
        ...

    async def plan(self, kind: str, request: bytes, *, by: UserName) -> bytes:
        """Return the report on a request of a kind of `plan.kinds`; both are JSON.

        Raises: Refusal of the request, or where the user has had too many; Trouble when
        there is no report in time.
        """
        ...
