"""Batches and files of users, in the store in memory."""

from collections.abc import Sequence as Seq

from corral.domain.batch import Batch, BatchId, FileId, StoredFile
from corral.domain.ids import UserName
from corral.domain.users import AuditEntry


class MemoryBatches:
    """Base class of the store in memory: batches and files of users."""

    def __init__(self) -> None:
        self._files: dict[FileId, StoredFile] = {}
        self._batches: dict[BatchId, Batch] = {}

    def _add_entry(self, entry: AuditEntry) -> None: ...

    async def put_file(
        self, file: StoredFile, *, entry: AuditEntry | None = None
    ) -> None:
        self._files[file.id] = file
        if entry is not None:
            self._add_entry(entry)

    async def file(self, id: FileId) -> StoredFile | None:
        return self._files.get(id)

    async def files(self, *, owner: UserName | None = None) -> Seq[StoredFile]:
        rows = [file for file in self._files.values() if owner in (None, file.owner)]
        return sorted(rows, key=lambda file: (file.created_at, file.id), reverse=True)

    async def drop_file(self, id: FileId, *, entry: AuditEntry | None = None) -> bool:
        is_removed = self._files.pop(id, None) is not None
        if is_removed and entry is not None:
            self._add_entry(entry)
        return is_removed

    async def put_batch(self, batch: Batch, *, entry: AuditEntry | None = None) -> None:
        self._batches[batch.id] = batch
        if entry is not None:
            self._add_entry(entry)

    async def batch(self, id: BatchId) -> Batch | None:
        return self._batches.get(id)

    async def batches(self, *, owner: UserName | None = None) -> Seq[Batch]:
        rows = [row for row in self._batches.values() if owner in (None, row.owner)]
        return sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True)

    async def open_batches(self) -> Seq[Batch]:
        rows = [row for row in self._batches.values() if not row.status.is_over]
        return sorted(rows, key=lambda row: (row.created_at, row.id))

    async def drop_batches(self, *, created_before: float) -> int:
        old = [
            row.id
            for row in self._batches.values()
            if row.status.is_over and row.created_at < created_before
        ]
        for id in old:
            del self._batches[id]
        return len(old)

    def _drop_owner(self, owner: UserName) -> None:
        """Remove the rows of a user who is removed."""
        self._files = {
            id: file for id, file in self._files.items() if file.owner != owner
        }
        self._batches = {
            id: row for id, row in self._batches.items() if row.owner != owner
        }
