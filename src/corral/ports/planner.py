"""Interface of the planner, which runs outside the head's event loop."""

from typing import Protocol

from corral.domain.ids import UserName
from corral.domain.quota import RateUse


class Planner(Protocol):
    def seconds_of(self, user: UserName) -> RateUse:
        """Return how many seconds of planning the user has used recently, and how many
        are allowed."""
        ...

    async def plan(self, kind: str, request: bytes, *, by: UserName) -> bytes:
        """Return the planner's report on a request. `kind` is a kind of `plan.kinds`;
        request and report are JSON.

        Raises: Refusal if the request is invalid, or the user has made too many
        requests; Trouble when the report is not ready in time.
        """
        ...
