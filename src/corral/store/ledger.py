"""The ledger in the tables of the store. The usage records of a commit are added to the
recorded sums, in the transaction of the commit."""

from collections.abc import Iterable, Iterator, Set
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, select

from corral.domain.errors import InvariantBroken
from corral.domain.ids import JobId
from corral.domain.ledger import UsageRecord, summed
from corral.store import row_codec
from corral.store.schema import account_days, accounts
from corral.store.sql_dialects import Put, StatementBatch, texts_of

READ_AT_ONCE: Final = 500
_PUT: Final = {table: Put(table, ("key",)) for table in (accounts, account_days)}
_keys: Final = texts_of(bindparam("keys")).table_valued("value")
_KNOWN: Final = {
    table: select(table.c.record, table.c.crc).where(
        table.c.key.in_(select(_keys.c.value))
    )
    for table in (accounts, account_days)
}


def check(rows: Iterable[UsageRecord]) -> Iterator[tuple[object, str]]:
    """Yield each usage record that cannot be stored, with the reason."""
    for row in rows:
        try:
            _row_of_usage_record(row_codec.text_of(row.key), row)
        except InvariantBroken as error:
            yield row, error.message


def add(
    connection: Connection,
    batch: StatementBatch,
    rows: Iterable[UsageRecord],
    known: Set[JobId],
) -> None:
    """Add usage records to the sums of each day, and to the sums of each job that is in
    `known`, the jobs that the store has."""
    rows = list(rows)
    _add_usage_records(
        connection, batch, accounts, (row for row in rows if row.job in known)
    )
    _add_usage_records(connection, batch, account_days, (row.of_day for row in rows))


def _add_usage_records(
    connection: Connection,
    batch: StatementBatch,
    table: Table,
    rows: Iterable[UsageRecord],
) -> None:
    new_rows = {row_codec.text_of(key): row for key, row in summed(rows).items()}
    if not new_rows:
        return
    known_rows = connection.execute(
        _KNOWN[table], {"keys": row_codec.text_of(sorted(new_rows))}
    ).all()
    for record, crc in known_rows:
        previous_row = row_codec.ACCOUNT.read(record, crc)
        text = row_codec.text_of(previous_row.key)
        new_rows[text] = previous_row.plus(new_rows[text])
    batch.put(
        _PUT[table], [_row_of_usage_record(text, row) for text, row in new_rows.items()]
    )


def _row_of_usage_record(key: str, account: UsageRecord) -> dict[str, Any]:
    record, crc = row_codec.ACCOUNT.write(account)
    row = dict(key=key, day=account.day, record=record, crc=crc)
    return row if account.job is None else row | {"job": account.job}


def of_jobs(
    connection: Connection, first: int, last: int, job: JobId | None
) -> list[UsageRecord]:
    query = _day_range_query(accounts, first, last)
    return _read_usage_records(
        connection, query if job is None else query.where(accounts.c.job == job)
    )


def days(connection: Connection, first: int, last: int) -> list[UsageRecord]:
    return _read_usage_records(connection, _day_range_query(account_days, first, last))


def _day_range_query(table: Table, first: int, last: int) -> Any:
    query = select(table.c.record, table.c.crc)
    return query.where(table.c.day.between(first, last)).order_by(table.c.key)


def _read_usage_records(connection: Connection, query: Any) -> list[UsageRecord]:
    """Return the usage records that a query finds. They are read in batches, because no
    other thread of the head runs while the driver fetches rows."""
    row_batches = connection.execute(query).partitions(READ_AT_ONCE)
    return [
        row_codec.ACCOUNT.read(record, crc)
        for row_batch in row_batches
        for record, crc in row_batch
    ]
