"""From an older schema to this one: the scripts, and how they are run."""

from pathlib import Path
from typing import Any, Final, cast

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

SCRIPTS: Final = Path(__file__).parent


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
