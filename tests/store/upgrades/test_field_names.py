"""Stores and backups whose records have the field names of schema 0012."""

import asyncio
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from corral.boot.backup import restore
from corral.boot.settings import ClusterDir
from corral.domain.cause import Cause
from corral.domain.errors import StoreTrouble
from corral.domain.ids import JobId, NodeId
from corral.domain.node_fault import Restriction
from corral.domain.node_signal import SignalKind
from corral.domain.requests import CheckNodes, CordonSuspects, SetQueues
from corral.store.postgres import PostgresStore
from corral.store.sqlite import SqliteStore
from corral.store.sqlite.database import SqliteDatabase
from corral.store.tables import TableStore
from tests.boot.test_older_backups import backup_of
from tests.postgres import Server
from tests.store.rows import ANN, submit
from tests.store.test_backup import filled, lines_of, on_postgres
from tests.store.upgrades.test_postgres_upgrades import take_back
from tests.store.upgrades.test_upgrades import HERE, restored

OLD_NAMES = HERE / "names-0012.sql"


async def check(store: TableStore) -> None:
    """Raises: AssertionError unless all that had an old name reads as it was."""
    try:
        world = await store.lead()
        node = world.nodes[NodeId("n1")]
        assert node.health_cordoned_at == 7.0
        assert [(one.kind, one.text, one.restriction) for one in node.conditions] == [
            (SignalKind.XID, "XID 79 on GPU 3 ☃", Restriction.DRAIN),
            (SignalKind.LEMON, "3 of 4", Restriction.AVOID),
        ]
        events = await store.events(after=0, job=None, limit=9)
        assert [(one.kind, one.text) for one in events][0] == (
            "condition",
            'ailment "ailment"',
        )
        assert [one.kind for one in events][1:] == [
            "lemon",
            "request_failed",
            "drain",
        ]
        job = JobId("j1")
        causes = [one.cause for one in await store.attempts(job)]
        assert causes == [Cause.REQUEST, Cause.USER]
        receipts = [one.cause for one in await store.receipts(job)]
        assert receipts == [Cause.REQUEST, Cause.INFRA]
        tree = world.queues
        assert (
            tree.min_runtime_seconds,
            tree.rack_locality_delay_seconds,
            tree.pod_locality_delay_seconds,
        ) == (60.0, 300.0, 600.0)
        suspects, checks, queues = [
            request.asked for request in await store.requests_after(1)
        ]
        assert suspects == CordonSuspects()
        assert isinstance(checks, CheckNodes)
        assert checks.max_wait_seconds == 90.0
        assert isinstance(queues, SetQueues)
        assert (
            queues.min_runtime_seconds,
            queues.rack_locality_delay_seconds,
            queues.pod_locality_delay_seconds,
        ) == (30.0, 5.0, 6.0)
        again = await store.add_request(submit("again", key="first"), by=ANN, at=9.0)
        assert again.sequence == 1
        assert len(await store.audit(limit=9)) == 4
    finally:
        await store.close()


def test_a_store_with_the_old_names_reads_as_it_was(tmp_path: Path) -> None:
    path = restored(OLD_NAMES, tmp_path / "corral.db")
    for _ in range(2):
        asyncio.run(check(SqliteStore(path)))


def test_a_backup_with_the_old_names_reads_as_it_was(tmp_path: Path) -> None:
    dump = tmp_path / "schema-0012.sql"
    dump.write_text(OLD_NAMES.read_text())
    place = ClusterDir(tmp_path / "there")
    restore(place, backup_of(dump, tmp_path))
    asyncio.run(check(SqliteStore(place.database)))


def test_a_database_of_a_server_with_the_old_names_reads_as_it_was(
    tmp_path: Path, postgres: Server
) -> None:
    path, url = restored(OLD_NAMES, tmp_path / "corral.db"), postgres.database()
    asyncio.run(SqliteStore(path).close())
    asyncio.run(filled(on_postgres(url), lines_of(SqliteDatabase(path))).close())
    take_back(url, "0012")
    with closing(sqlite3.connect(":memory:")) as old:
        old.executescript(OLD_NAMES.read_text())
        put_rows_back(old, url)
    asyncio.run(check(PostgresStore(url)))


def put_rows_back(old: sqlite3.Connection, url: str) -> None:
    """Give the rows of the server the records of the dump again."""
    keys = {
        "nodes": ("id",),
        "events": ("number",),
        "queues": ("id",),
        "attempts": ("job", "number"),
        "receipts": ("number",),
        "wishes": ("sequence",),
    }
    with psycopg.connect(url) as raw:
        for table, key in keys.items():
            names = ("record", "crc", *(["kind"] if table == "wishes" else []))
            rows = old.execute(f"SELECT {', '.join(names + key)} FROM {table}")
            sets = ", ".join(f"{name} = %s" for name in names)
            where = " AND ".join(f"{name} = %s" for name in key)
            for row in rows:
                raw.execute(f"UPDATE {table} SET {sets} WHERE {where}", row)


def test_a_damaged_row_is_still_refused_after_the_upgrade(tmp_path: Path) -> None:
    path = restored(OLD_NAMES, tmp_path / "corral.db")
    record = '{"id":"n1","ailments":[]}'
    with closing(sqlite3.connect(path)) as raw, raw:
        values = (record, zlib.crc32(record.encode()) ^ 1)
        raw.execute("UPDATE nodes SET record = ?, crc = ? WHERE id = 'n1'", values)
    with pytest.raises(StoreTrouble, match="damaged"):
        asyncio.run(check(SqliteStore(path)))


def test_many_events_are_renamed_a_batch_at_a_time(tmp_path: Path) -> None:
    path = restored(OLD_NAMES, tmp_path / "corral.db")
    with closing(sqlite3.connect(path)) as raw, raw:
        for number in range(5, 3_006):
            record = f'{{"at":3.0,"kind":"wish_failed","text":"{number}"}}'
            values = (number, record, zlib.crc32(record.encode()))
            raw.execute("INSERT INTO events VALUES (?, NULL, ?, ?)", values)
    asyncio.run(SqliteStore(path).close())
    with closing(sqlite3.connect(path)) as raw:
        old = 'SELECT count(*) FROM events WHERE record LIKE \'%"kind":"wish_failed%\''
        assert raw.execute(old).fetchone() == (0,)
        assert raw.execute("SELECT count(*) FROM events").fetchone() == (3_005,)
