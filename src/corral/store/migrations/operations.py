"""Operations for migration scripts, on the connection of the running upgrade."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from sqlalchemy import Connection, text

_connection: Final[ContextVar[Connection]] = ContextVar("connection of an upgrade")


class Operations:
    """Statements for migration scripts. One upgrade runs at a time, in its own context."""

    def execute(self, statement: str) -> None:
        """Run SQL in the upgrade's transaction. Raises: what the driver raises."""
        _connection.get().execute(text(statement))

    def get_bind(self) -> Connection:
        """Return the connection, for rows that are read or written with values."""
        return _connection.get()


op: Final = Operations()


@contextmanager
def working_on(connection: Connection) -> Iterator[None]:
    """Make `op` use this connection within the context."""
    token = _connection.set(connection)
    try:
        yield
    finally:
        _connection.reset(token)
