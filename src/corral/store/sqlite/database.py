"""A SQLite file: its connections, and the operations that the store's threads need."""

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast
from urllib.parse import quote

from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from corral.domain.errors import CorralError
from corral.store.database import driver
from corral.store.sqlite.trouble import named

BUSY_MILLISECONDS: Final = 5_000
WAL_LIMIT_BYTES: Final = 64 * 1024 * 1024
CHECKPOINT_ROWS: Final = 1_000  # changed rows between two checkpoints

log = logging.getLogger(__name__)


def connect(path: Path, *, write: bool) -> Connection:
    """Return a connection for the calling thread. The store's threads begin and end
    transactions themselves: see `transaction`."""

    def creator() -> sqlite3.Connection:
        raw = _open_raw_connection(path, "rw")
        raw.execute("PRAGMA synchronous = FULL")
        raw.execute("PRAGMA foreign_keys = ON")
        # the writer does it, after its answers
        raw.execute("PRAGMA wal_autocheckpoint = 0")
        raw.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        if not write:
            raw.execute("PRAGMA query_only = ON")
        return raw

    engine = create_engine("sqlite://", creator=creator, poolclass=NullPool)
    return engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def _open_raw_connection(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=BUSY_MILLISECONDS / 1000,
    )


@contextlib.contextmanager
def closing_raw(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(_open_raw_connection(path, mode)) as raw:
        yield raw


@dataclass(slots=True)
class SqliteDatabase:
    """Implementation of database.Database for the SQLite file at the path."""

    path: Path
    checkpointed_at: int = 0  # rows that had been changed by then
    begin_writing = ("BEGIN IMMEDIATE",)
    begin_reading = ("BEGIN",)
    errors = (sqlite3.Error,)

    @property
    def name(self) -> str:
        return str(self.path)

    def connect(self, *, write: bool) -> Connection:
        return connect(self.path, write=write)

    def in_transaction(self, connection: Connection) -> bool:
        return raw_of(connection).in_transaction

    def is_lost(self, connection: Connection) -> bool:
        return False

    def is_busy(self, error: Exception) -> bool:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY

    def named(self, error: Exception) -> CorralError:
        return named(cast(sqlite3.Error, error), self.path)

    def tidy(self, connection: Connection) -> bool:
        changed = raw_of(connection).total_changes
        if changed - self.checkpointed_at < CHECKPOINT_ROWS:
            return False
        self.checkpointed_at = changed
        return self._checkpoint(connection, "PASSIVE")

    def finish(self, connection: Connection) -> None:
        self._checkpoint(connection, "TRUNCATE")

    def _checkpoint(self, connection: Connection, how: str) -> bool:
        """Move the write-ahead log into the database file. Return whether this
        succeeded; a failure loses nothing, because the log stays. `how`: SQLite's
        checkpoint mode."""
        try:
            raw_of(connection).execute(f"PRAGMA wal_checkpoint({how})").fetchall()
        except sqlite3.Error as error:
            trouble = named(error, self.path)
            log.warning(
                "the write-ahead log could not be moved into the store, and stays: %s; %s",
                trouble.message,
                trouble.hint,
            )
            return False
        return True


def raw_of(connection: Connection) -> sqlite3.Connection:
    return cast(sqlite3.Connection, driver(connection))


def sync_directory(directory: Path) -> None:
    """Sync the directory, so that the file names in it survive a power cut."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
