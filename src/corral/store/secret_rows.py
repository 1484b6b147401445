"""Encrypted secrets in their table. Each operation is a function of a connection, and
runs in one of the store's threads."""

from collections.abc import Sequence as Seq
from collections.abc import Set
from typing import Final, cast

from sqlalchemy import Connection, delete, select, update

from corral.domain.ids import UserName
from corral.domain.users import AuditEntry
from corral.store.audit import add_entry
from corral.store.schema import secrets
from corral.store.sql_dialects import Put, put

_PUT: Final = Put(secrets, ("name",))
_FOR_EVERYBODY: Final = select(secrets.c.name).where(secrets.c.everybody == 1)


def put_secret(
    connection: Connection,
    name: str,
    sealed: bytes,
    by: UserName,
    at: float,
    for_everybody: bool | None,
    entry: AuditEntry | None,
) -> None:
    if for_everybody is None:
        for_everybody = name in names_for_everybody(connection)
    row = dict(name=name, sealed=sealed, by=by, at=at, everybody=int(for_everybody))
    put(connection, _PUT, [row])
    if entry is not None:
        add_entry(connection, entry)


def seal_anew(connection: Connection, name: str, was: bytes, now: bytes) -> bool:
    match_condition = (secrets.c.name == name) & (secrets.c.sealed == was)
    return (
        connection.execute(
            update(secrets).where(match_condition).values(sealed=now)
        ).rowcount
        > 0
    )


def drop_secret(connection: Connection, name: str, entry: AuditEntry | None) -> bool:
    is_removed = (
        connection.execute(delete(secrets).where(secrets.c.name == name)).rowcount > 0
    )
    if is_removed and entry is not None:
        add_entry(connection, entry)
    return is_removed


def secret_of(connection: Connection, name: str) -> bytes | None:
    cursor_result = connection.execute(
        select(secrets.c.sealed).where(secrets.c.name == name)
    )
    return cast(bytes | None, cursor_result.scalar_one_or_none())


def secret_names(connection: Connection) -> Seq[tuple[str, UserName, float]]:
    query = select(secrets.c.name, secrets.c.by, secrets.c.at).order_by(secrets.c.name)
    return [
        (name, UserName(owner), created_at)
        for name, owner, created_at in connection.execute(query)
    ]


def names_for_everybody(connection: Connection) -> Set[str]:
    return frozenset(connection.execute(_FOR_EVERYBODY).scalars())
