"""The table of the audit log. Entries form a hash chain, and are appended in the
transaction of the change that they record.

Each entry can also be sealed with the cluster's key. The key is an option of the
writing connection, because it is not part of the store. Without it, as in a store that
no head has opened, entries are linked but not sealed.
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
    """Number and chain link of the newest audit entry. `link` is None for an entry from
    before the chain existed."""

    number: int
    link: str | None


def add_entry(connection: Connection, entry: AuditEntry) -> None:
    """Append an entry to the audit log. Call this in a writing transaction, so that no
    other connection appends at the same time."""
    newest_row = connection.execute(NEWEST).one_or_none()
    tail = Tail(0, None) if newest_row is None else Tail(*newest_row)
    put(connection, ADD_ENTRY, [entry_row(connection, entry, tail)])


def entry_row(connection: Connection, entry: AuditEntry, tail: Tail) -> dict[str, Any]:
    """Return the table row of an audit entry that follows the entry `tail`."""
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
    """Return the first link of the chain, computed from all existing entries without a
    link. This happens only once in a store: at its first entry, or at the first entry
    after the upgrade."""
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
    """Return entries of the audit log: of user `by`, since a time, and before a number.
    The newest come first; with `after`, those after that number, the oldest first."""
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
    """Yield all audit entries, the oldest first, read in pages. Call this in one
    transaction."""
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
    """Return whether the record matches its checksum, and its time and user match the
    separate columns `at` and `by`."""
    try:
        entry = ENTRY.read(record, crc)
    except StoreTrouble:
        return False
    return (entry.at, entry.by) == (at, by)
