"""Curves of the last day and month, bounded in bytes: for pages and `corral top`, not
for rules."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from corral.domain.time_series import Curve


class SeriesStore(Protocol):
    """Store of the time series of each key ("node:n1", "job:j7", "queue:research",
    "cluster").

    Losing it loses pictures and nothing else: writing never raises for the disk's sake.
    """

    def put(self, key: str, at: float, values: Mapping[str, float | None]) -> None:
        """One moment of one thing; moments of a key only rise."""
        ...

    async def read(
        self, key: str, *, since: float, until: float, fields: Sequence[str] = ()
    ) -> Curve:
        """Return the values of these fields (all: none named) between two moments."""
        ...

    async def keep(self, now: float) -> None:
        """Write down what is new, thin out what is old, and stay below the bound."""
        ...

    async def close(self) -> None: ...
