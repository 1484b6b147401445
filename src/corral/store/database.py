"""Interface of a database for the store's threads. They use it without knowing which
database it is."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

from sqlalchemy import Connection

from corral.domain.errors import CorralError


class DatabaseDriver(Protocol):
    """Interface of the driver's connection. Until BEGIN, each statement is its own
    transaction."""

    def execute(self, statement: str, /) -> Any: ...


class Database(Protocol):
    """Interface of a database that holds the store's tables. Each connection belongs to
    the thread that opened it."""

    @property
    def name(self) -> str:
        """Return the name for errors, without a password."""
        ...

    @property
    def begin_writing(self) -> Sequence[str]:
        """Return the statements that begin a writing transaction, after which no other
        connection writes until its end."""
        ...

    @property
    def begin_reading(self) -> Sequence[str]:
        """Return the statements that begin a reading transaction, which sees the
        database as of one moment."""
        ...

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """Return the exception types that the driver raises."""
        ...

    def connect(self, *, write: bool) -> Connection:
        """Open a connection. Raises: one of `errors` if that fails."""
        ...

    def in_transaction(self, connection: Connection) -> bool: ...

    def is_lost(self, connection: Connection) -> bool:
        """Return whether the connection is lost, so that it can run no more statements."""
        ...

    def is_busy(self, error: Exception) -> bool:
        """Return whether the error means that another connection is writing.

        If so, retrying each piece of work separately would wait for that connection
        each time.
        """
        ...

    def named(self, error: Exception) -> CorralError:
        """Convert an exception of one of the types in `errors`: return Trouble with a
        hint, or a bug of Corral."""
        ...

    def tidy(self, connection: Connection) -> bool:
        """Do maintenance after the callers have their answers. Return whether there was
        anything to do."""
        ...

    def finish(self, connection: Connection) -> None:
        """Do the final work before a connection that has written is closed."""
        ...


def driver(connection: Connection) -> DatabaseDriver:
    return cast(DatabaseDriver, connection.connection.driver_connection)


@contextlib.contextmanager
def transaction(
    database: Database, connection: Connection, *, write: bool
) -> Iterator[None]:
    """Run the context as one transaction: all of it is committed durably, or nothing."""
    raw = driver(connection)
    try:
        for statement in database.begin_writing if write else database.begin_reading:
            raw.execute(statement)
        yield
        raw.execute("COMMIT")
    except BaseException:
        if not database.is_lost(connection) and database.in_transaction(connection):
            raw.execute("ROLLBACK")
        raise
