"""Upgrade from an older schema to this one, in one transaction; a copy of the old file
is kept."""

import contextlib
import sqlite3
from pathlib import Path

from corral.domain.errors import StoreTrouble
from corral.store.database import transaction
from corral.store.migrations import run_scripts
from corral.store.sqlite.database import (
    SqliteDatabase,
    closing_raw,
    connect,
    raw_of,
    sync_directory,
)


def upgrade(path: Path, revision: str) -> None:
    """Upgrade the store from its revision to that of the newest script.

    A copy of the old file is kept as `<path>.schema-<revision>`. Raises: StoreTrouble
    when anything fails; the store is then unchanged.
    """
    copy = path.with_name(f"{path.name}.schema-{revision}")
    try:
        _keep_copy(path, copy)
        _upgrade_schema(path)
    except Exception as error:  # a script may raise anything
        raise StoreTrouble(
            f"the store {path} could not be upgraded from schema {revision} and is "
            f"unchanged: {error}",
            hint=f"free space for a copy of {path}, or install the older corral again",
        ) from error


def _upgrade_schema(path: Path) -> None:
    with contextlib.closing(connect(path, write=True)) as connection:
        raw = raw_of(connection)
        # a table may be rebuilt; checked before the end
        raw.execute("PRAGMA foreign_keys = OFF")
        with transaction(SqliteDatabase(path), connection, write=True):
            run_scripts(connection)
            broken = raw.execute("PRAGMA foreign_key_check").fetchall()
            if broken:
                raise sqlite3.IntegrityError(
                    f"rows without their job after the upgrade: {broken}"
                )


def _keep_copy(path: Path, copy: Path) -> None:
    copy.unlink(missing_ok=True)
    with closing_raw(path, "ro") as raw:
        raw.execute("VACUUM INTO ?", (str(copy),))
    copy.chmod(0o600)
    sync_directory(copy.parent)
