"""Batches and files of users in their tables. Each operation is a function of a
connection, and runs in one of the store's threads."""

from typing import Final

from sqlalchemy import Connection, delete, select

from corral.domain.batch import Batch, BatchId, FileId, StoredFile
from corral.domain.ids import UserName
from corral.domain.users import AuditEntry
from corral.store.audit import add_entry
from corral.store.row_codec import BATCH, FILE
from corral.store.schema import batches, files
from corral.store.sql_dialects import Put, put

_PUT_FILE: Final = Put(files, ("id",))
_PUT_BATCH: Final = Put(batches, ("id",))


def put_file(
    connection: Connection, file: StoredFile, entry: AuditEntry | None
) -> None:
    record, crc = FILE.write(file)
    row = dict(
        id=file.id,
        owner=file.owner,
        bytes=file.size_bytes,
        expires_at=file.expires_at,
        record=record,
        crc=crc,
    )
    put(connection, _PUT_FILE, [row])
    if entry is not None:
        add_entry(connection, entry)


def file_of(connection: Connection, id: FileId) -> StoredFile | None:
    query = select(files.c.record, files.c.crc).where(files.c.id == id)
    row = connection.execute(query).one_or_none()
    return None if row is None else FILE.read(*row)


def files_of(connection: Connection, owner: UserName | None) -> list[StoredFile]:
    query = select(files.c.record, files.c.crc)
    if owner is not None:
        query = query.where(files.c.owner == owner)
    rows = [FILE.read(record, crc) for record, crc in connection.execute(query)]
    return sorted(rows, key=lambda file: (file.created_at, file.id), reverse=True)


def drop_file(connection: Connection, id: FileId, entry: AuditEntry | None) -> bool:
    is_removed = connection.execute(delete(files).where(files.c.id == id)).rowcount > 0
    if is_removed and entry is not None:
        add_entry(connection, entry)
    return is_removed


def put_batch(connection: Connection, batch: Batch, entry: AuditEntry | None) -> None:
    record, crc = BATCH.write(batch)
    row = dict(
        id=batch.id,
        owner=batch.owner,
        created_at=batch.created_at,
        open=int(not batch.status.is_over),
        record=record,
        crc=crc,
    )
    put(connection, _PUT_BATCH, [row])
    if entry is not None:
        add_entry(connection, entry)


def batch_of(connection: Connection, id: BatchId) -> Batch | None:
    query = select(batches.c.record, batches.c.crc).where(batches.c.id == id)
    row = connection.execute(query).one_or_none()
    return None if row is None else BATCH.read(*row)


def batches_of(connection: Connection, owner: UserName | None) -> list[Batch]:
    newest = (batches.c.created_at.desc(), batches.c.id.desc())
    query = select(batches.c.record, batches.c.crc).order_by(*newest)
    if owner is not None:
        query = query.where(batches.c.owner == owner)
    return [BATCH.read(record, crc) for record, crc in connection.execute(query)]


def open_batches(connection: Connection) -> list[Batch]:
    oldest = (batches.c.created_at, batches.c.id)
    query = select(batches.c.record, batches.c.crc).where(batches.c.open == 1)
    rows = connection.execute(query.order_by(*oldest))
    return [BATCH.read(record, crc) for record, crc in rows]


def drop_batches(connection: Connection, created_before: float) -> int:
    is_old = (batches.c.open == 0) & (batches.c.created_at < created_before)
    return connection.execute(delete(batches).where(is_old)).rowcount


def drop_owner(connection: Connection, owner: UserName) -> None:
    """Remove the rows of a user who is removed. A later user of this name must not
    see them."""
    connection.execute(delete(files).where(files.c.owner == owner))
    connection.execute(delete(batches).where(batches.c.owner == owner))
