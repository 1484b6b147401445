"""Interface of a database for the threads, which need not know which one it is."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

from sqlalchemy import Connection

from corral.domain.errors import CorralError


class DatabaseDriver(Protocol):
    """The driver's own connection, in which each statement stands alone until BEGIN."""

    def execute(self, statement: str, /) -> Any: ...


class Database(Protocol):
    """Database with the tables. A connection belongs to the thread that opened it."""

    @property
    def name(self) -> str:
        """Return the name for errors, without a password."""
        ...

    @property
    def begin_writing(self) -> Sequence[str]:
        """Return statements after which no other connection writes until the end."""
        ...

    @property
    def begin_reading(self) -> Sequence[str]:
        """Statements after which all is read as of one moment."""
        ...

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """Return the errors that the driver raises."""
        ...

    def connect(self, *, write: bool) -> Connection:
        """Raises: one of `errors`."""
        ...

    def in_transaction(self, connection: Connection) -> bool: ...

    def is_lost(self, connection: Connection) -> bool:
        """Whether nothing can be asked over this connection any more."""
        ...

    def is_busy(self, error: Exception) -> bool:
        """Whether another connection writes.

        Each separate retry would then have to wait for it.
        """
        ...

    def named(self, error: Exception) -> CorralError:
        """One of `errors` as Trouble with what to do, or as our own bug."""
        ...

    def tidy(self, connection: Connection) -> bool:
        """After the callers have their answers. Answers whether there was anything to
        do."""
        ...

    def finish(self, connection: Connection) -> None:
        """Before a connection that has written goes."""
        ...


def driver(connection: Connection) -> DatabaseDriver:
    return cast(DatabaseDriver, connection.connection.driver_connection)


@contextlib.contextmanager
def transaction(
    database: Database, connection: Connection, *, write: bool
) -> Iterator[None]:
    """All of it, durably, or nothing."""
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
