"""A database of an older schema is brought up in place, by one head of those that
come."""

import asyncio
import threading
from pathlib import Path

import psycopg
import pytest

from corral.domain.job_states import JobState
from corral.domain.leader_election import Leader
from corral.store.postgres import PostgresStore
from corral.store.schema import REVISION
from corral.store.sqlite import SqliteStore
from corral.store.sqlite.database import SqliteDatabase
from tests.postgres import Server
from tests.store.rows import ANN, submit
from tests.store.test_backup import filled, lines_of, on_postgres
from tests.store.upgrades.test_upgrades import RELEASED, read, restored

# tables, by the schema that brought them; 0004 is the first that PostgreSQL had
ADDED = {
    "0005": ("leader",),
    "0006": ("heads", "agreed"),
    "0007": ("imported",),
    "0008": ("debts",),
    "0009": ("accounts", "account_days"),
    "0010": (),
    "0011": (),
    "0012": ("specs", "uploads"),
    "0013": (),
    "0014": ("services", "gateway_counts"),
    "0015": ("files", "batches"),
}
COLUMNS_ADDED = {
    "0010": (("audit", "link"), ("audit", "seal")),
    "0011": (("secrets", "everybody"),),
}
ON_POSTGRES = [dump for dump in RELEASED if dump.stem >= "schema-0004"]


def take_back(url: str, revision: str) -> None:
    """Make it a database of that schema."""
    later = [table for at, tables in ADDED.items() if at > revision for table in tables]
    with psycopg.connect(url) as raw:
        for table in later:
            raw.execute(f"DROP TABLE {table}")
        for at, columns in COLUMNS_ADDED.items():
            for table, column in columns if at > revision else ():
                raw.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        raw.execute("UPDATE alembic_version SET version_num = %s", (revision,))


def shape(url: str) -> set[tuple[str, ...]]:
    """Every column and index."""
    with psycopg.connect(url) as raw:
        columns = raw.execute(
            "SELECT table_name, column_name, is_nullable FROM information_schema.columns "
            "WHERE table_schema = 'public'"
        )
        indexes = raw.execute(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'"
        )
        return {*columns.fetchall(), *indexes.fetchall()}


def test_every_schema_since_the_first_on_postgresql_can_be_taken_back_to() -> None:
    """A new schema is a line of ADDED."""
    assert [dump.stem[-4:] for dump in ON_POSTGRES] == ["0004", *ADDED]
    assert max(ADDED) == REVISION


@pytest.mark.parametrize("dump", ON_POSTGRES, ids=lambda dump: dump.stem)
def test_a_released_schema_opens_with_all_it_held(
    dump: Path, tmp_path: Path, postgres: Server
) -> None:
    path, url = restored(dump, tmp_path / "corral.db"), postgres.database()
    asyncio.run(SqliteStore(path).close())
    asyncio.run(filled(on_postgres(url), lines_of(SqliteDatabase(path))).close())
    take_back(url, dump.stem[-4:])
    world = asyncio.run(read(PostgresStore(url)))
    assert world.cluster == "c1"
    assert {id: job.state for id, job in world.jobs.items()} == {"j1": JobState.RUNNING}
    assert world.ended == {"j2": JobState.DONE}
    assert len(world.nodes) == 2
    fresh = postgres.database()
    asyncio.run(PostgresStore(fresh).close())
    assert shape(url) == shape(fresh)


def test_an_older_database_is_brought_up_once_and_keeps_what_it_held(
    postgres: Server,
) -> None:
    url = postgres.database()

    async def fill() -> None:
        store = PostgresStore(url)
        await store.lead()
        await store.add_request(submit("first", key="first"), by=ANN, at=1.0)
        await store.close()

    asyncio.run(fill())
    take_back(url, "0004")
    opened: list[PostgresStore] = []
    threads = [
        threading.Thread(target=lambda: opened.append(PostgresStore(url)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def look() -> None:
        assert len(opened) == 3
        assert await opened[0].leader() == Leader(term=1)
        assert [request.sequence for request in await opened[1].requests_after(0)] == [
            1
        ]
        await opened[2].keep_leading((await opened[2].lead()).term, name="a", url="x")
        for store in opened:
            await store.close()

    asyncio.run(look())
    with psycopg.connect(url) as raw:
        found = raw.execute("SELECT version_num FROM alembic_version").fetchall()
    assert found == [(REVISION,)]
