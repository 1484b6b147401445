"""Opening of a SQLite file as a store of this version: the file is checked first, then
changed."""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from corral.domain.errors import StoreTrouble, Unsupported
from corral.domain.ids import ClusterId
from corral.store.commits import begin
from corral.store.database import transaction
from corral.store.row_codec import RECOVER
from corral.store.schema import APPLICATION_ID, REVISION, metadata
from corral.store.sqlite.database import (
    SqliteDatabase,
    closing_raw,
    connect,
    raw_of,
    sync_directory,
)
from corral.store.sqlite.log import has_lost_commits
from corral.store.sqlite.trouble import named

# up to this, every start checks all of it (0.2 s)
CHECK_BYTES: Final = 128 * 1024 * 1024


def prepare(path: Path, fresh_id: Callable[[], str]) -> None:
    """Create the store at the path if it does not exist, check it, and upgrade it.

    An older store is upgraded to REVISION.

    Raises: Unsupported for a newer schema or another program's file; StoreTrouble for a
    file that is damaged or cannot be opened. Nothing in the file has then been changed.
    """
    try:
        if not _has_content(path):
            _create_empty_store(path, fresh_id)
        revision = _examine_store_file(path)
        if revision != REVISION:
            from corral.store.sqlite.upgrade import upgrade  # only when there is need

            upgrade(path, revision)
    except sqlite3.Error as error:
        raise named(error, path) from error
    except UnicodeDecodeError as error:
        # the driver met a name that is no text any more
        raise StoreTrouble(
            f"the store {path} is damaged: {error}", hint=RECOVER
        ) from error
    except OSError as error:
        raise StoreTrouble(
            f"the store {path} cannot be opened: {error.strerror}",
            hint=f"check that {path.parent} exists and is writable",
        ) from error


def _wal_path(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _examine_store_file(path: Path) -> str:
    """Check the file, and return the revision of its schema. The check uses a read-only
    connection, which leaves the file and its log unchanged."""
    small = path.stat().st_size <= CHECK_BYTES
    unclean = _has_content(_wal_path(path))
    check = "integrity_check" if small else "quick_check" if unclean else ""
    with closing_raw(path, "ro") as raw:
        (application,) = raw.execute("PRAGMA application_id").fetchone()
        tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_schema")}
        if application != APPLICATION_ID or "alembic_version" not in tables:
            raise Unsupported(
                f"{path} is a database of another program, not a store of Corral",
                hint="choose another directory: corral --dir DIR up",
            )
        (revision,) = raw.execute("SELECT version_num FROM alembic_version").fetchone()
        if revision > REVISION:
            raise Unsupported(
                f"the store {path} has schema {revision}; this version of corral supports "
                f"schemas up to {REVISION}",
                hint="install the newer corral again, or restore the copy made at the upgrade: "
                f"{path}.schema-*",
            )
        if check:
            _check_integrity(raw, path, check)
        if unclean and has_lost_commits(
            _wal_path(path), path.with_name(path.name + "-shm")
        ):
            raise StoreTrouble(
                f"the write-ahead log {_wal_path(path)} is damaged in the middle: opening "
                "the store would lose acknowledged changes",
                hint=RECOVER,
            )
    return str(revision)


def _check_integrity(raw: sqlite3.Connection, path: Path, how: str) -> None:
    complaints = [line for (line,) in raw.execute(f"PRAGMA {how}(5)")]
    if complaints != ["ok"]:
        raise StoreTrouble(
            f"the store {path} is damaged: {'; '.join(complaints)}", hint=RECOVER
        )


def _create_empty_store(path: Path, fresh_id: Callable[[], str]) -> None:
    """Create an empty store of this version under a temporary name; the file gets its
    final name only when it is complete."""
    if _has_content(_wal_path(path)):
        raise StoreTrouble(
            f"{_wal_path(path)} is the write-ahead log of a store, but {path} is missing",
            hint=f"restore {path} from a backup, or move the log away to start with an "
            "empty store",
        )
    path.unlink(missing_ok=True)  # it is empty
    new_path = path.with_name(path.name + ".new")
    for stale_file in (
        new_path,
        _wal_path(new_path),
        new_path.with_name(new_path.name + "-journal"),
    ):
        stale_file.unlink(missing_ok=True)
    os.close(os.open(new_path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    _initialize_store(new_path, fresh_id)
    # another made it first: then that one counts
    with contextlib.suppress(FileExistsError):
        os.link(new_path, path)
    sync_directory(path.parent)
    new_path.unlink()


def _initialize_store(path: Path, fresh_id: Callable[[], str]) -> None:
    with closing_raw(path, "rw") as raw:
        raw.execute("PRAGMA journal_mode = WAL")
    with contextlib.closing(connect(path, write=True)) as connection:
        raw = raw_of(connection)
        with transaction(SqliteDatabase(path), connection, write=True):
            raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            metadata.create_all(connection)
            stamp(raw)
            begin(connection, ClusterId(fresh_id()))
        # all of it in the one file
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def stamp(raw: sqlite3.Connection) -> None:
    """Write the revision of the schema into the table in which migrations look for it."""
    raw.execute(
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
        "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
    )
    raw.execute("INSERT INTO alembic_version VALUES (?)", (REVISION,))
