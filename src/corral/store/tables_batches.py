"""The part of the store on tables for batches and files of users."""

from collections.abc import Sequence as Seq

from corral.domain.batch import Batch, BatchId, FileId, StoredFile
from corral.domain.ids import UserName
from corral.domain.users import AuditEntry
from corral.store import batch_rows
from corral.store.connection_threads import ReaderThread, Writer


class TableBatches:
    """Implementation of ports.BatchStore on the store's threads."""

    _writer: Writer
    _quick: ReaderThread
    _listing: ReaderThread

    async def put_file(
        self, file: StoredFile, *, entry: AuditEntry | None = None
    ) -> None:
        await self._writer.ask(lambda db: batch_rows.put_file(db, file, entry))

    async def file(self, id: FileId) -> StoredFile | None:
        return await self._quick.ask(lambda db: batch_rows.file_of(db, id))

    async def files(self, *, owner: UserName | None = None) -> Seq[StoredFile]:
        return await self._listing.ask(lambda db: batch_rows.files_of(db, owner))

    async def drop_file(self, id: FileId, *, entry: AuditEntry | None = None) -> bool:
        return await self._writer.ask(lambda db: batch_rows.drop_file(db, id, entry))

    async def put_batch(self, batch: Batch, *, entry: AuditEntry | None = None) -> None:
        await self._writer.ask(lambda db: batch_rows.put_batch(db, batch, entry))

    async def batch(self, id: BatchId) -> Batch | None:
        return await self._quick.ask(lambda db: batch_rows.batch_of(db, id))

    async def batches(self, *, owner: UserName | None = None) -> Seq[Batch]:
        return await self._listing.ask(lambda db: batch_rows.batches_of(db, owner))

    async def open_batches(self) -> Seq[Batch]:
        return await self._quick.ask(batch_rows.open_batches)

    async def drop_batches(self, *, created_before: float) -> int:
        return await self._writer.ask(
            lambda db: batch_rows.drop_batches(db, created_before)
        )
