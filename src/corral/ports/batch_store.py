"""Interface of durable storage of batches and of the files of users."""

from collections.abc import Sequence as Seq
from typing import Protocol

from corral.domain.batch import Batch, BatchId, FileId, StoredFile
from corral.domain.ids import UserName
from corral.domain.users import AuditEntry


class BatchStore(Protocol):
    """The part of the Store for batches and files. What a file contains is not in the
    store. The rows of a user are removed with the user.

    Every method raises StoreTrouble when the store cannot be read or written.
    """

    async def put_file(
        self, file: StoredFile, *, entry: AuditEntry | None = None
    ) -> None:
        """Add a file, or replace the one with its id, together with an entry of the
        audit log."""
        ...

    async def file(self, id: FileId) -> StoredFile | None: ...

    async def files(self, *, owner: UserName | None = None) -> Seq[StoredFile]:
        """Return the files of a user, or of all users, the newest first."""
        ...

    async def drop_file(self, id: FileId, *, entry: AuditEntry | None = None) -> bool:
        """Remove a file. Return whether it was there."""
        ...

    async def put_batch(self, batch: Batch, *, entry: AuditEntry | None = None) -> None:
        """Add a batch, or replace the one with its id, together with an entry of the
        audit log."""
        ...

    async def batch(self, id: BatchId) -> Batch | None: ...

    async def batches(self, *, owner: UserName | None = None) -> Seq[Batch]:
        """Return the batches of a user, or of all users, the newest first."""
        ...

    async def open_batches(self) -> Seq[Batch]:
        """Return the batches that are not over, the oldest first."""
        ...

    async def drop_batches(self, *, created_before: float) -> int:
        """Remove the batches that are over and were created before this time. Return
        how many were removed."""
        ...
