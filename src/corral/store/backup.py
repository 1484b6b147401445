"""Backup: writes a store as lines of JSON, and creates a store from such lines. The
format is the same for every database.

A restored store does not know what happened after the backup. So its term is set far
above any term that a head can have led since. Its request numbers, from which job ids
are made, continue at a number that no running attempt can have.
"""

import base64
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from sqlalchemy import (
    Column,
    Connection,
    LargeBinary,
    Table,
    delete,
    func,
    select,
    update,
)

from corral.domain.errors import StoreTrouble
from corral.domain.ids import ClusterId, Sequence
from corral.domain.users import Role
from corral.store import commits
from corral.store.migrations.versions.m0013_field_names import renamed
from corral.store.queries import read_head
from corral.store.schema import (
    agreed,
    head,
    heads,
    jobs,
    leader,
    metadata,
    receipts,
    secrets,
)
from corral.store.sql_dialects import Put, put, text_at
from corral.store.users_schema import audit, users

TERMS: Final = 1_000_000  # heads that may have led since the backup was made
REQUESTS: Final = 10_000
BATCH: Final = 1_000
# as migration 0011 names the owner; no user has such a name
REMOVED_USER: Final = "(removed)"
# schemas from here on differ by added tables and columns, and by names in records
OLDEST: Final = "0009"


def lines_of(connection: Connection) -> Iterator[bytes]:
    """Yield every row of the store as a line of a backup. Rows to which others refer
    come first. The registered heads are left out. Call this in one transaction."""
    for table in (
        sorted_table
        for sorted_table in metadata.sorted_tables
        if sorted_table is not heads
    ):
        keys = [
            column for column in table.columns if column.name not in ("record", "crc")
        ]
        for row in connection.execute(select(table).order_by(*keys)).mappings():
            columns_by_name = {str(name): value for name, value in row.items()}
            yield msgspec.json.encode((str(table.name), columns_by_name)) + b"\n"


def needed(connection: Connection) -> list[str]:
    """Return the digests of the workdir snapshots that unfinished jobs still need."""
    digest = text_at(jobs.c.record, "spec.workdir")
    scalar_result = connection.execute(
        select(digest).where(jobs.c.final == 0).distinct()
    ).scalars()
    return sorted(digest for digest in scalar_result if digest is not None)


def jobs_in(connection: Connection) -> tuple[int, int]:
    """Return the jobs in the store: (number of all jobs, number of unfinished jobs)."""
    count = select(
        func.count(), func.coalesce(func.sum(1 - jobs.c.final), 0)
    ).select_from(jobs)
    total_jobs, unfinished = connection.execute(count).one()
    return total_jobs, int(unfinished)


def cluster_of(connection: Connection) -> ClusterId:
    return read_head(connection).cluster


def fill(connection: Connection, lines: Iterable[bytes]) -> None:
    """Restore a backup: insert its rows into a new store, within one transaction of the
    caller.

    Raises: StoreTrouble when a line was not written by `lines_of`.
    """
    for table in (head, leader):
        connection.execute(delete(table))
    batch: list[dict[str, Any]] = []
    of: Table | None = None
    is_before_sharing = False
    for line in lines:
        table, row = _parse_backup_line(line)
        if table is secrets and row["everybody"] is None:
            is_before_sharing, row["everybody"] = True, 0
        if of is not None and (table is not of or len(batch) >= BATCH):
            put(connection, Put(of), batch)
            batch = []
        of = table
        batch.append(row)
    if of is not None:
        put(connection, Put(of), batch)
    if is_before_sharing:
        _share_as_before(connection)
    # heads, and the folder that they share, may be others now
    of_heads = (agreed.c.what == "state") | agreed.c.what.startswith("head ")
    connection.execute(delete(agreed).where(of_heads))
    _go_on_counting(connection)
    _move_far_ahead(connection)


def _share_as_before(connection: Connection) -> None:
    """Convert secrets of an old backup as schema 0011 does. Before 0011, secrets of
    admins were available to all users, and secrets of removed users belonged to a name
    only."""
    rows = connection.execute(
        select(users.c.name, text_at(users.c.record, "role"))
    ).all()
    roles = {str(name): role for name, role in rows}
    admins = [name for name, role in roles.items() if role == Role.ADMIN]
    connection.execute(
        update(secrets).where(secrets.c.by.in_(admins)).values(everybody=1)
    )
    connection.execute(
        update(secrets).where(secrets.c.by.not_in(roles)).values(by=REMOVED_USER)
    )


def _parse_backup_line(line: bytes) -> tuple[Table, dict[str, Any]]:
    try:
        name, row = msgspec.json.decode(line, type=tuple[str, dict[str, Any]])
        table = metadata.tables[name]
        later = {
            column.name for column in table.columns if _may_lack(column)
        } - row.keys()
        if row.keys() | later != set(table.columns.keys()):
            raise KeyError(name)
        row = renamed(name, row | dict.fromkeys(later))
        for column in table.columns:
            if isinstance(column.type, LargeBinary) and row[column.name] is not None:
                row[column.name] = base64.b64decode(row[column.name], validate=True)
    except (msgspec.MsgspecError, KeyError, ValueError, TypeError) as error:
        raise StoreTrouble(
            f"the backup is damaged: this line is not a row of a store: {line[:60]!r}",
            hint="use another backup",
        ) from error
    return table, row


def _may_lack(column: Column[Any]) -> bool:
    """Return whether a backup from an older schema may have no value in this column."""
    return bool(column.nullable) or column is secrets.c.everybody


def _move_far_ahead(connection: Connection) -> None:
    """Check the head's row, and raise its term and its request numbers above everything
    that may have been used since the backup."""
    store_head = read_head(connection)
    newest_wish = Sequence(
        ((store_head.newest_wish + REQUESTS) // REQUESTS + 1) * REQUESTS
    )
    commits.put_head(
        connection,
        store_head._replace(term=store_head.term + TERMS, newest_wish=newest_wish),
    )


def _go_on_counting(connection: Connection) -> None:
    """Set PostgreSQL's sequences of row numbers after the highest row, because
    PostgreSQL keeps sequences separate from the rows."""
    if connection.dialect.name == "postgresql":
        for table in (audit, receipts):
            next_number = select(
                func.coalesce(func.max(table.c.number), 0) + 1
            ).scalar_subquery()
            function = func.pg_get_serial_sequence(table.name, "number")
            connection.execute(select(func.setval(function, next_number, False)))
