"""From an older schema to this one, in one transaction, with a copy of the file kept."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any, Final, cast

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from corral.domain.errors import StoreTrouble
from corral.store.lanes import driver, transaction
from corral.store.opening import closing_raw, connect, sync_directory

SCRIPTS: Final = Path(__file__).parent


def upgrade(path: Path, revision: str) -> None:
    """Bring the store from its revision to the newest of the scripts.

    A copy of the file as it was is kept as `<path>.schema-<revision>`. Raises: StoreTrouble when
    anything fails; the store is as it was then.
    """
    copy = path.with_name(f"{path.name}.schema-{revision}")
    try:
        _keep_copy(path, copy)
        _upgrade(path)
    except Exception as error:  # a script may raise anything
        raise StoreTrouble(
            f"the store {path} could not be brought up from schema {revision}, and is as it was: "
            f"{error}",
            hint=f"free space for a copy of {path}, or install the older corral again",
        ) from error


def _upgrade(path: Path) -> None:
    with contextlib.closing(connect(path, write=True)) as connection:
        raw = driver(connection)
        raw.execute("PRAGMA foreign_keys = OFF")  # a table may be rebuilt; checked before the end
        with transaction(raw, "BEGIN IMMEDIATE"):
            run_scripts(connection)
            broken = raw.execute("PRAGMA foreign_key_check").fetchall()
            if broken:
                raise sqlite3.IntegrityError(f"rows without their job after the upgrade: {broken}")


def run_scripts(connection: Connection) -> None:
    """Every script that the database has not seen, inside the transaction that is open."""
    directory = ScriptDirectory(str(SCRIPTS))
    if not connection.in_transaction():
        connection.begin()  # alembic then leaves the driver's transaction to us

    def pending(revision: Any, _context: MigrationContext) -> Any:
        return cast(Any, directory)._upgrade_revs("head", revision)

    context = MigrationContext.configure(
        connection, opts={"fn": pending, "script": directory, "transactional_ddl": False}
    )
    with Operations.context(context):
        context.run_migrations()


def _keep_copy(path: Path, copy: Path) -> None:
    copy.unlink(missing_ok=True)
    with closing_raw(path, "ro") as raw:
        raw.execute("VACUUM INTO ?", (str(copy),))
    copy.chmod(0o600)
    sync_directory(copy.parent)
