"""Audit log entries of reads of other users' logs: at most one in a while for each
reader and job."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from corral.api.auth import Caller
from corral.domain.ids import JobId, TokenId
from corral.domain.job import Job
from corral.ports.clock import Clock
from corral.ports.store import Store

AGAIN_SECONDS: Final = 600.0  # a page asks for the same log again and again
READERS_MOST: Final = 10_000


@dataclass(slots=True, kw_only=True)
class ReadsOfOthers:
    """Record of which reads of other users' logs are already in the audit log."""

    store: Store
    clock: Clock
    _noted: OrderedDict[tuple[TokenId, JobId], float] = field(
        default_factory=OrderedDict
    )

    async def note(self, caller: Caller, job: Job) -> None:
        """Record in the audit log, before the read, that the caller reads the log of
        another user's job, unless that was recorded recently.

        Raises: StoreTrouble.
        """
        if caller.name == job.owner:
            return
        now, key = self.clock.monotonic(), (caller.token, job.id)
        if now - self._noted.get(key, float("-inf")) < AGAIN_SECONDS:
            return
        entry = caller.entry(self.clock.wall(), on=job.id, detail=f"of {job.owner}")
        await self.store.record(entry)
        self._noted[key] = now
        while len(self._noted) > READERS_MOST:
            self._noted.popitem(last=False)
