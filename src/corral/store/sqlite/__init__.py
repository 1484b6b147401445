"""The head's own store: one SQLite file in WAL mode, with one thread that writes."""

import secrets
from collections.abc import Callable
from pathlib import Path

from corral.store.audit import Seal
from corral.store.sqlite.database import SqliteDatabase
from corral.store.sqlite.opening import prepare
from corral.store.store_rules import KEEP_EVENTS, KEEP_KEYS
from corral.store.tables import TableStore


def _fresh_id() -> str:
    return secrets.token_hex(16)


class SqliteStore(TableStore):
    """Implementation of ports.Store in one SQLite file. Opening it checks the file, and
    upgrades it if its schema is older.

    When the last connection is closed, the write-ahead log is moved into the file.

    Raises: Unsupported for a newer schema or another program's file; StoreTrouble for a
    damaged file. In both cases nothing in the file is changed.
    """

    def __init__(
        self,
        path: Path,
        *,
        fresh_id: Callable[[], str] = _fresh_id,
        keep_events: int = KEEP_EVENTS,
        keep_keys: int = KEEP_KEYS,
        seal: Seal | None = None,
    ) -> None:
        prepare(path, fresh_id)
        super().__init__(
            SqliteDatabase(path),
            keep_events=keep_events,
            keep_keys=keep_keys,
            seal=seal,
        )
