"""Conversion of PostgreSQL errors to Corral's errors."""

from typing import Final

import psycopg
from psycopg import errors as refused

from corral.domain.errors import CorralError, InvariantBroken, StoreTrouble

_HINTS: Final[tuple[tuple[type[psycopg.Error], str], ...]] = (
    (refused.DiskFull, "free space on the disk of the server; Corral then continues"),
    (refused.LockNotAvailable, "find the other writer: SELECT * FROM pg_stat_activity"),
    (
        refused.QueryCanceled,
        "check the load of the server: SELECT * FROM pg_stat_activity",
    ),
    (
        refused.ReadOnlySqlTransaction,
        "use the URL of the server that accepts writes, not of a replica",
    ),
    (
        refused.InsufficientPrivilege,
        "make the user of this URL the owner of the database, or of its schema",
    ),
    (refused.TooManyConnections, "raise max_connections: each head uses four"),
    (refused.DataCorrupted, "restore a backup of the database"),
    (refused.IndexCorrupted, "rebuild the indexes: REINDEX DATABASE"),
)
_OURS: Final = (
    psycopg.IntegrityError,
    psycopg.ProgrammingError,
    psycopg.InterfaceError,
    psycopg.DataError,
)
# The driver gives no code for a refused connection.
_REACH: Final = (
    "check that the server runs, and that its database (createdb), user and password "
    "(~/.pgpass) are right: psql URL"
)


def named(error: psycopg.Error, name: str) -> CorralError:
    """Return the error as Trouble with a hint, or as a bug of Corral."""
    error_text = " ".join(str(error).split()) or type(error).__name__
    for kind, hint in _HINTS:
        if isinstance(error, kind):
            return StoreTrouble(f"the store {name}: {error_text}", hint=hint)
    if isinstance(error, _OURS):
        return InvariantBroken(f"the store {name} refused a row: {error_text}")
    return StoreTrouble(f"the store {name}: {error_text}", hint=_REACH)
