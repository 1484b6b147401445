"""Store of time series of the last day and month, with bounded size. It serves pages
and `corral top`, not rules."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from corral.domain.time_series import Curve


class SeriesStore(Protocol):
    """Store of the time series of each key ("node:n1", "job:j7", "queue:research",
    "cluster").

    If the store is lost, only charts are lost. Writing never raises because of the
    disk.
    """

    def put(self, key: str, at: float, values: Mapping[str, float | None]) -> None:
        """Add the values of one key at one moment. The moments of a key must rise."""
        ...

    async def read(
        self, key: str, *, since: float, until: float, fields: Sequence[str] = ()
    ) -> Curve:
        """Return the values of these fields between two moments; of all fields if none
        is named."""
        ...

    async def keep(self, now: float) -> None:
        """Write new values to disk, thin out old ones, and stay below the size limit."""
        ...

    async def close(self) -> None: ...
