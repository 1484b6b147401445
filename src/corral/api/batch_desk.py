"""Batches that are not over, in the head's memory and in the store."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from corral.domain.batch import Batch, BatchId, LineCounts
from corral.domain.users import AuditEntry
from corral.ports.store import Store


@dataclass(slots=True, kw_only=True)
class BatchDesk:
    """Batches of one head while it leads. `changed` is set when there is work."""

    store: Store
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    # results of checks whose batches cannot be submitted yet
    checked: dict[BatchId, Any] = field(default_factory=dict)
    _open: dict[BatchId, Batch] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def open(self) -> Sequence[Batch]:
        """Return the batches that are not over. Raises: StoreTrouble."""
        return list((await self._loaded()).values())

    async def find(self, id: str) -> Batch | None:
        """Return the batch with this id. Raises: StoreTrouble."""
        batch = (await self._loaded()).get(BatchId(id))
        return batch or await self.store.batch(BatchId(id))

    def newest(self, batch: Batch) -> Batch:
        """Return the batch with its newest counts, which the store lacks."""
        return (self._open or {}).get(batch.id, batch)

    async def add(self, batch: Batch, *, entry: AuditEntry) -> None:
        """Add a batch. Raises: StoreTrouble."""
        batches = await self._loaded()
        async with self._lock:
            await self.store.put_batch(batch, entry=entry)
            batches[batch.id] = batch
        self.changed.set()

    async def change(
        self,
        batch: Batch,
        update: Callable[[Batch], Batch],
        *,
        entry: AuditEntry | None = None,
    ) -> Batch:
        """Replace a batch by its updated present state, and return it. A batch that is
        over stays as it is. Raises: StoreTrouble."""
        batches = await self._loaded()
        async with self._lock:
            present = batches.get(batch.id)
            if present is None:
                return await self.store.batch(batch.id) or batch
            updated = update(present)
            await self.store.put_batch(updated, entry=entry)
            batches[batch.id] = updated
            if updated.status.is_over:
                del batches[batch.id]
                self.checked.pop(batch.id, None)
        self.changed.set()
        return updated

    def count(self, batch: Batch, counts: LineCounts) -> None:
        """Take the newest counts of a batch. They are stored with its next change."""
        if self._open is not None and batch.id in self._open:
            self._open[batch.id] = replace(self._open[batch.id], counts=counts)

    async def _loaded(self) -> dict[BatchId, Batch]:
        async with self._lock:
            if self._open is None:
                rows = await self.store.open_batches()
                self._open = {batch.id: batch for batch in rows}
            return self._open
