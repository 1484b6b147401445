"""The audit log only grows, whoever writes SQL."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from corral.domain.ids import TokenId
from corral.domain.users import AuditEntry
from corral.store import migrations
from corral.store.sqlite import SqliteStore
from corral.store.sqlite.database import connect
from tests.store.rows import ANN


def fresh(path: Path) -> Path:
    SqliteStore(path)
    return path


def migrated(path: Path) -> Path:
    sqlite3.connect(path).close()
    with connect(path, write=True) as connection:
        migrations.run_scripts(connection)
    connection.engine.dispose()
    return path


@pytest.mark.parametrize("made", [fresh, migrated])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET record = 'nothing happened'",
        "UPDATE audit SET number = 9",
        "UPDATE OR IGNORE audit SET at = 0",
        "DELETE FROM audit",
        "DELETE FROM audit WHERE number = 1",
        "REPLACE INTO audit SELECT * FROM audit",
        "INSERT OR REPLACE INTO audit VALUES (1, 0, 'eve', '{}', 0, '', '')",
        "INSERT INTO audit VALUES (1, 0, 'eve', '', 0, '', '') ON CONFLICT DO UPDATE SET at = 0",
    ],
)
def test_no_statement_changes_or_removes_a_line(
    made: object, statement: str, tmp_path: Path
) -> None:
    path = made(tmp_path / "corral.db")  # type: ignore[operator]
    with sqlite3.connect(path) as raw:
        raw.execute("INSERT INTO audit VALUES (1, 1.0, 'ann', '{\"a\": 1}', 7, '', '')")
        before = raw.execute("SELECT * FROM audit").fetchall()
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            raw.execute(statement)
        assert raw.execute("SELECT * FROM audit").fetchall() == before
    raw.close()


def test_a_line_that_was_changed_beside_the_triggers_is_noticed(tmp_path: Path) -> None:
    path = fresh(tmp_path / "corral.db")
    entry = AuditEntry(at=1.0, by=ANN, token=TokenId("t1"), what="job.cancel", on="j1")

    async def write() -> None:
        store = SqliteStore(path)
        await store.record(entry)
        await store.close()

    async def read() -> None:
        store = SqliteStore(path)
        try:
            await store.audit(limit=9)
        finally:
            await store.close()

    asyncio.run(write())
    with sqlite3.connect(path) as raw:
        raw.execute("DROP TRIGGER audit_no_update")
        raw.execute("UPDATE audit SET record = replace(record, 'ann', 'eve')")
    raw.close()
    with pytest.raises(Exception, match="damaged"):
        asyncio.run(read())
