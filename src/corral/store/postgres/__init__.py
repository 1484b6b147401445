"""The store for several heads: a PostgreSQL database. Only the leader writes; all heads
read."""

import secrets
from collections.abc import Callable

from corral.store.audit import Seal
from corral.store.postgres.database import PostgresDatabase
from corral.store.postgres.opening import prepare
from corral.store.store_rules import KEEP_EVENTS, KEEP_KEYS
from corral.store.tables import TableStore


def _fresh_id() -> str:
    return secrets.token_hex(16)


class PostgresStore(TableStore):
    """Implementation of ports.Store in the PostgreSQL database at the URL. Opening it
    creates or upgrades the tables.

    Raises: SpecInvalid for a URL that names no database; Unsupported for a newer schema
    or another program's tables; StoreTrouble when the database cannot be reached.
    """

    def __init__(
        self,
        url: str,
        *,
        fresh_id: Callable[[], str] = _fresh_id,
        keep_events: int = KEEP_EVENTS,
        keep_keys: int = KEEP_KEYS,
        seal: Seal | None = None,
    ) -> None:
        database = PostgresDatabase.at(url)
        prepare(database, fresh_id)
        super().__init__(
            database, keep_events=keep_events, keep_keys=keep_keys, seal=seal
        )
