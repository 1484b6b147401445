"""Conversion of SQLite errors to Corral's errors."""

import sqlite3
from pathlib import Path
from typing import Final

from corral.domain.errors import CorralError, InvariantBroken, StoreTrouble
from corral.store.row_codec import RECOVER

_BY_CODE: Final = {
    sqlite3.SQLITE_FULL: "free space on the disk of {path} (df -h {path}); Corral then continues",
    sqlite3.SQLITE_READONLY: "make {path} and its directory writable; Corral then continues",
    sqlite3.SQLITE_CANTOPEN: "check that the directory of {path} exists and is writable",
    sqlite3.SQLITE_PERM: "make {path} and its directory writable; Corral then continues",
    sqlite3.SQLITE_IOERR: "check the disk of {path} for errors (dmesg, df -h {path})",
    sqlite3.SQLITE_BUSY: "find the other process that uses {path}: fuser {path}",
    sqlite3.SQLITE_CORRUPT: RECOVER,
    sqlite3.SQLITE_NOTADB: RECOVER,
}
_OURS: Final = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
)


def named(error: sqlite3.Error, path: Path) -> CorralError:
    """Return the error as Trouble with a hint, or as a bug of Corral."""
    if isinstance(error, _OURS):
        return InvariantBroken(f"the store {path} refused a row: {error}")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extended part
    hint = _BY_CODE.get(code, "run: sqlite3 {path} 'PRAGMA integrity_check'")
    return StoreTrouble(f"the store {path}: {error}", hint=hint.format(path=path))
