"""Imported jobs in the tables of the store."""

from collections.abc import Sequence as Seq
from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, select, tuple_

from corral.domain.imported import Imported
from corral.domain.users import AuditEntry
from corral.store import row_codec
from corral.store.audit import add_entry
from corral.store.schema import imported
from corral.store.sql_dialects import Put, put, texts_of

BATCH: Final = 1_000
_ADD: Final = Put(imported, ("id",), only_new=True)
_ids: Final = texts_of(bindparam("ids")).table_valued("value")
_KNOWN: Final = (
    select(func.count())
    .select_from(imported)
    .where(imported.c.id.in_(select(_ids.c.value)))
)
_AGE: Final = (imported.c.ended_at, imported.c.id)


def keep(connection: Connection, rows: Seq[Imported], entry: AuditEntry) -> int:
    count_before = _count_imported(connection)
    for batch_start in range(0, len(rows), BATCH):
        put(
            connection,
            _ADD,
            [_row_of_imported(row) for row in rows[batch_start : batch_start + BATCH]],
        )
    add_entry(connection, entry)
    return _count_imported(connection) - count_before


def known(connection: Connection, ids: Seq[str]) -> int:
    return int(connection.execute(_KNOWN, {"ids": row_codec.text_of(ids)}).scalar_one())


def newest(connection: Connection, limit: int, before: str | None) -> list[Imported]:
    query = select(imported.c.record, imported.c.crc)
    if before is not None:
        age_query = select(*_AGE).where(imported.c.id == before)
        newest_row = connection.execute(age_query).one_or_none()
        if newest_row is None:
            return []
        query = query.where(tuple_(*_AGE) < tuple_(*newest_row))
    in_order = query.order_by(*(column.desc() for column in _AGE)).limit(max(0, limit))
    return [row_codec.IMPORTED.read(*row) for row in connection.execute(in_order).all()]


def _count_imported(connection: Connection) -> int:
    return int(
        connection.execute(select(func.count()).select_from(imported)).scalar_one()
    )


def _row_of_imported(one: Imported) -> dict[str, Any]:
    record, crc = row_codec.IMPORTED.write(one)
    return dict(id=one.id, ended_at=one.ended_at, record=record, crc=crc)
