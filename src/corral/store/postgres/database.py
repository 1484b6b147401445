"""A PostgreSQL database: its connections, and the operations that the store's threads
need."""

import os
from dataclasses import dataclass
from typing import Any, Final, Self, cast

import psycopg
from psycopg import errors as refused
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from corral.domain.errors import CorralError, SpecInvalid
from corral.store.database import driver
from corral.store.postgres.trouble import named

CONNECT_SECONDS: Final = 5
# A head that is stopped in the middle of a transaction holds the lock of all who write:
# the server ends its session after this long. It is shorter than what a standby waits
# before it takes over.
IDLE_MILLISECONDS: Final = 3_000
LOCK_MILLISECONDS: Final = 5_000
STATEMENT_MILLISECONDS: Final = 60_000
# A server that went away without a word is missed after about 10 s by reads, writes and
# silence.
KEEPALIVE: Final[dict[str, Any]] = {
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """Implementation of database.Database for the server of the connection string."""

    conninfo: str
    name: str
    # one way to the server and back
    begin_writing = ("BEGIN; SELECT FROM head FOR UPDATE",)
    begin_reading = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",)
    errors = (psycopg.Error,)

    @classmethod
    def at(cls, url: str) -> Self:
        """Return the database for a URL or a libpq connection string. Missing parts are
        taken from PGHOST, PGPASSFILE and similar variables, as psql does.

        Raises: SpecInvalid if the URL is not valid.
        """
        try:
            connection_fields = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise SpecInvalid(
                f"the URL of the database is not valid: {str(error).strip()}",
                hint="write for example postgresql://corral@db.example.org/corral, with the "
                "password in ~/.pgpass",
            ) from None
        return cls(make_conninfo(url), _name_of(connection_fields))

    def connect(self, *, write: bool) -> Connection:
        def creator() -> psycopg.Connection[Any]:
            return self.raw(write=write)

        engine = create_engine(
            "postgresql+psycopg://", creator=creator, poolclass=NullPool
        )
        return engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def raw(self, *, write: bool) -> psycopg.Connection[Any]:
        settings = {
            "application_name": "corral",
            "default_transaction_read_only": "off" if write else "on",
            # what is acknowledged survives, whatever the default is
            "synchronous_commit": "on",
            "idle_in_transaction_session_timeout": str(IDLE_MILLISECONDS),
            "lock_timeout": str(LOCK_MILLISECONDS),
            "statement_timeout": str(STATEMENT_MILLISECONDS),
        }
        own_options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        asked_options = conninfo_to_dict(self.conninfo).get("options") or ""
        return psycopg.connect(
            self.conninfo,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            options=f"{asked_options} {own_options}".strip(),
            **KEEPALIVE,
        )

    def in_transaction(self, connection: Connection) -> bool:
        status = _raw_of(connection).info.transaction_status
        return status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def is_lost(self, connection: Connection) -> bool:
        return connection.invalidated or _raw_of(connection).closed

    def is_busy(self, error: Exception) -> bool:
        return isinstance(error, refused.LockNotAvailable)

    def named(self, error: Exception) -> CorralError:
        return named(cast(psycopg.Error, error), self.name)

    def tidy(self, connection: Connection) -> bool:
        return False  # the server writes its own log back

    def finish(self, connection: Connection) -> None:
        """Do nothing: the server keeps the tables."""


def _raw_of(connection: Connection) -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", driver(connection))


def _name_of(said: dict[str, Any]) -> str:
    """Return the address of the database for error messages. It has no password and no
    parameters that only tune the connection."""
    host = (
        said.get("host")
        or said.get("hostaddr")
        or os.environ.get("PGHOST")
        or "localhost"
    )
    port = said.get("port") or os.environ.get("PGPORT")
    name = said.get("dbname") or os.environ.get("PGDATABASE") or ""
    return f"postgresql://{host}{f':{port}' if port else ''}/{name}"
