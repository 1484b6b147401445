"""The audit log in its table: entries are appended in a chain within the transaction
that writes, and read.

The seal of entries is an option of the connection that writes, because a cluster's key
is not part of its store. Without a seal, as in a store that no head has opened, entries
are still linked.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, select

from corral.domain.audit_chain import ChainEntry, UnchainedDigest, next_link
from corral.domain.errors import StoreTrouble
from corral.domain.ids import UserName
from corral.domain.users import AuditEntry
from corral.store.row_codec import Codec
from corral.store.sql_dialects import Put, put
from corral.store.users_schema import audit

Seal = Callable[[str], str]
SEAL_OPTION: Final = "corral_audit_seal"
ENTRY: Final = Codec("line of the audit log", AuditEntry)
ADD_ENTRY: Final = Put(audit)
PAGE: Final = 5_000
NEWEST: Final = (
    select(audit.c.number, audit.c.link).order_by(audit.c.number.desc()).limit(1)
)


class Tail(NamedTuple):
    """The newest entry of the audit log. `link` is None for an entry from before the
    chain."""

    number: int
    link: str | None


def add_entry(connection: Connection, entry: AuditEntry) -> None:
    """Append an entry. It must run in a writing transaction, so that no other
    connection appends at the same time."""
    newest_row = connection.execute(NEWEST).one_or_none()
    tail = Tail(0, None) if newest_row is None else Tail(*newest_row)
    put(connection, ADD_ENTRY, [entry_row(connection, entry, tail)])


def entry_row(connection: Connection, entry: AuditEntry, tail: Tail) -> dict[str, Any]:
    """Return the row of an entry that is appended after the tail."""
    record, crc = ENTRY.write(entry)
    previous_link = _link_of_unchained(connection) if tail.link is None else tail.link
    number = tail.number + 1
    link = next_link(previous_link, number, record)
    seal: Seal | None = connection.get_execution_options().get(SEAL_OPTION)
    return dict(
        number=number,
        at=entry.at,
        by=entry.by,
        record=record,
        crc=crc,
        link=link,
        seal=None if seal is None else seal(link),
    )


def _link_of_unchained(connection: Connection) -> str:
    """Return the link that begins the chain. It is computed only once in a store: for
    its first entry, or the first entry after the upgrade."""
    digest = UnchainedDigest()
    for row in chain_entries(connection):
        digest.add(row.number, row.record)
    return digest.link()


def entries(
    connection: Connection,
    by: UserName | None,
    since: float,
    before: int | None,
    after: int | None,
    limit: int,
) -> list[AuditEntry]:
    """Return entries of the audit log, the newest first; with `after`, the entries
    after that number, the oldest first."""
    query = select(audit.c.number, audit.c.record, audit.c.crc, audit.c.link)
    query = query.where(audit.c.at >= since)
    if by is not None:
        query = query.where(audit.c.by == by)
    if before is not None:
        query = query.where(audit.c.number < before)
    if after is not None:
        query = query.where(audit.c.number > after).order_by(audit.c.number)
    else:
        query = query.order_by(audit.c.number.desc())
    entry_rows = connection.execute(query.limit(max(0, limit))).all()
    return [
        replace(ENTRY.read(record, crc), number=number, link=link or "")
        for number, record, crc, link in entry_rows
    ]


def chain_entries(connection: Connection) -> Iterator[ChainEntry]:
    """Yield all entries, the oldest first, in pages. It must run in one transaction."""
    last_number = -(2**62)
    while True:
        query = (
            select(audit)
            .where(audit.c.number > last_number)
            .order_by(audit.c.number)
            .limit(PAGE)
        )
        rows = connection.execute(query).all()
        for row in rows:
            yield ChainEntry(
                number=row.number,
                record=row.record,
                link=row.link,
                seal=row.seal,
                intact=_is_intact(row.at, row.by, row.record, row.crc),
            )
        if len(rows) < PAGE:
            return
        last_number = rows[-1].number


def _is_intact(at: float, by: str, record: str, crc: int) -> bool:
    """Return whether the columns by which entries are found agree with the record."""
    try:
        entry = ENTRY.read(record, crc)
    except StoreTrouble:
        return False
    return (entry.at, entry.by) == (at, by)
