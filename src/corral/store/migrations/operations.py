"""Operations for migration scripts, on the connection of the running upgrade."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from sqlalchemy import Connection, text

_connection: Final[ContextVar[Connection]] = ContextVar("connection of an upgrade")


class Operations:
    """The operations that migration scripts call. One upgrade runs at a time, in its
    own context."""

    def execute(self, statement: str) -> None:
        """Run an SQL statement in the upgrade's transaction. Raises: what the driver
        raises."""
        _connection.get().execute(text(statement))

    def get_bind(self) -> Connection:
        """Return the upgrade's connection, for reading and writing rows with
        parameters."""
        return _connection.get()


op: Final = Operations()


@contextmanager
def working_on(connection: Connection) -> Iterator[None]:
    """Let migration scripts use this connection, through `op`, within the context."""
    token = _connection.set(connection)
    try:
        yield
    finally:
        _connection.reset(token)
