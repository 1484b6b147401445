"""Migrations from an older schema to this one: the scripts, and the code that runs
them.

Each script in `versions` names its `revision` and the one before it, `down_revision`,
and changes the store in `upgrade`. The store keeps its revision in a table with the
name and form of alembic's table, because earlier versions ran these scripts with
alembic.
"""

from pathlib import Path
from runpy import run_path
from typing import Any, Final

from sqlalchemy import Connection, inspect, text

from corral.store.migrations.operations import working_on

SCRIPTS: Final = Path(__file__).parent
STAMP: Final = "alembic_version"


def run_scripts(connection: Connection) -> None:
    """Run every script that the database has not run yet, inside the open transaction.

    Raises: LookupError when the scripts do not form a chain from the database's
    revision.
    """
    if not connection.in_transaction():
        connection.begin()  # SQLAlchemy then leaves the driver's transaction as it is
    has_stamp = inspect(connection).has_table(STAMP)
    text_clause = text(f"SELECT version_num FROM {STAMP}")
    revision = connection.execute(text_clause).scalar() if has_stamp else None
    pending = _pending_scripts(revision)
    if not has_stamp:
        columns = (
            f"version_num VARCHAR(32) NOT NULL, CONSTRAINT {STAMP}_pkc PRIMARY KEY "
            "(version_num)"
        )
        connection.execute(text(f"CREATE TABLE {STAMP} ({columns})"))
    with working_on(connection):
        for script in pending:
            script["upgrade"]()
            _write_revision(connection, script["revision"])


def _pending_scripts(revision: str | None) -> list[dict[str, Any]]:
    """Return the scripts that follow a revision, in the order in which they must run."""
    scripts = [
        run_path(str(file)) for file in sorted((SCRIPTS / "versions").glob("m*.py"))
    ]
    following = {script["down_revision"]: script for script in scripts}
    if revision is not None and revision not in {
        script["revision"] for script in scripts
    }:
        raise LookupError(f"no migration leads on from schema {revision}")
    chain = []
    while (script := following.get(revision)) is not None:
        chain.append(script)
        revision = script["revision"]
    return chain


def _write_revision(connection: Connection, revision: str) -> None:
    connection.execute(text(f"DELETE FROM {STAMP}"))
    values = {"revision": revision}
    connection.execute(text(f"INSERT INTO {STAMP} VALUES (:revision)"), values)
