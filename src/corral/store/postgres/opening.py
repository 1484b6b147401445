"""Opening of a PostgreSQL database as a store of this version."""

import contextlib
from collections.abc import Callable
from typing import Final

import psycopg
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from corral.domain.errors import Unsupported
from corral.domain.ids import ClusterId
from corral.store.commits import begin
from corral.store.database import driver
from corral.store.postgres.database import PostgresDatabase
from corral.store.postgres.trouble import named
from corral.store.schema import APPLICATION_ID, REVISION, metadata

STAMP: Final = "alembic_version"
# Tables are created and changed in one transaction, while libraries are loaded. On a
# busy machine that exceeds the limit of an ordinary transaction, and other heads wait
# for it.
PREPARE_MILLISECONDS: Final = 60_000
_BEGIN: Final = (
    f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = {PREPARE_MILLISECONDS}; "
    f"SET LOCAL lock_timeout = {PREPARE_MILLISECONDS}"
)
_TABLES: Final = text(
    "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
)


def prepare(database: PostgresDatabase, fresh_id: Callable[[], str]) -> None:
    """Create the tables if there are none, or upgrade older ones to REVISION, in one
    transaction while no other head does this.

    Raises: Unsupported for a newer schema or another program's tables, StoreTrouble
    when the database cannot be reached or queried; then nothing in it has been changed.
    """
    try:
        with contextlib.closing(database.connect(write=True)) as connection:
            raw = driver(connection)
            raw.execute(_BEGIN)
            raw.execute(f"SELECT pg_advisory_xact_lock({APPLICATION_ID})")
            _bring_up(connection, database, fresh_id)
            raw.execute("COMMIT")
    except DBAPIError as error:
        inner = error.orig
        raise (
            named(inner, database.name) if isinstance(inner, psycopg.Error) else error
        ) from None
    except psycopg.Error as error:
        raise named(error, database.name) from None


def _bring_up(
    connection: Connection, database: PostgresDatabase, fresh_id: Callable[[], str]
) -> None:
    table_names = set(connection.execute(_TABLES).scalars())
    if not table_names:
        metadata.create_all(connection, checkfirst=False)
        connection.exec_driver_sql(
            f"CREATE TABLE {STAMP} (version_num VARCHAR(32) PRIMARY KEY)"
        )
        connection.exec_driver_sql(f"INSERT INTO {STAMP} VALUES (%s)", (REVISION,))
        begin(connection, ClusterId(fresh_id()))
        return
    if not {STAMP, "head", "jobs", "wishes"} <= table_names:
        raise Unsupported(
            f"the database {database.name} contains tables of another program "
            f"({', '.join(sorted(table_names)[:3])})",
            hint="create a database for Corral alone: createdb corral",
        )
    revision = connection.execute(text(f"SELECT version_num FROM {STAMP}")).scalar_one()
    if revision > REVISION:
        raise Unsupported(
            f"the store {database.name} has schema {revision}; this version of corral "
            f"supports schemas up to {REVISION}",
            hint="install the newer corral again",
        )
    if revision < REVISION:
        from corral.store.migrations import run_scripts  # only when there is need

        run_scripts(connection)
