"""A store as lines and back: the same rows in any database, and far ahead of what ran
since."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from corral.domain.errors import StoreTrouble
from corral.domain.ids import ClusterId, job_id
from corral.domain.receipt import ReceiptKind
from corral.domain.world import Changes
from corral.store import backup
from corral.store.database import Database, transaction
from corral.store.postgres import PostgresStore
from corral.store.postgres.database import PostgresDatabase
from corral.store.sqlite import SqliteStore
from corral.store.sqlite.database import SqliteDatabase
from corral.store.tables import TableStore
from tests.postgres import Server
from tests.store.rows import ANN, event, receipt, submit
from tests.store.upgrades.dump import fill

Place = tuple[Database, Callable[[], TableStore]]


def on_sqlite(path: Path) -> Place:
    return SqliteDatabase(path), lambda: SqliteStore(path)


def on_postgres(url: str) -> Place:
    return PostgresDatabase.at(url), lambda: PostgresStore(url)


def lines_of(database: Database) -> list[bytes]:
    with (
        closing(database.connect(write=False)) as connection,
        transaction(database, connection, write=False),
    ):
        return list(backup.lines_of(connection))


def filled(place: Place, lines: list[bytes]) -> TableStore:
    database, opened = place
    asyncio.run(opened().close())
    with (
        closing(database.connect(write=True)) as connection,
        transaction(database, connection, write=True),
    ):
        backup.fill(connection, lines)
    return opened()


@pytest.fixture
def written(tmp_path: Path) -> list[bytes]:
    path = tmp_path / "first.db"
    asyncio.run(fill(path))
    return lines_of(SqliteDatabase(path))


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return on_sqlite(tmp_path / "second.db")
    return on_postgres(request.getfixturevalue("postgres").database())


def test_all_rows_come_back_in_any_database(written: list[bytes], place: Place) -> None:
    store = filled(place, written)
    asyncio.run(store.close())
    kept = [line for line in written if not line.startswith(b'["head"')]
    assert [
        line for line in lines_of(place[0]) if not line.startswith(b'["head"')
    ] == kept


def test_a_database_of_a_server_becomes_a_file_again(
    written: list[bytes], postgres: Server, tmp_path: Path
) -> None:
    there = on_postgres(postgres.database())
    asyncio.run(filled(there, written).close())
    back = on_sqlite(tmp_path / "back.db")
    asyncio.run(filled(back, lines_of(there[0])).close())
    rows = [line for line in lines_of(back[0]) if not line.startswith(b'["head"')]
    assert rows == [line for line in written if not line.startswith(b'["head"')]


def test_the_restored_store_is_far_ahead_and_goes_on_counting(
    written: list[bytes], place: Place
) -> None:
    store = filled(place, written)

    async def go_on() -> None:
        world = await store.lead()
        assert world.cluster == ClusterId("c1")
        assert world.term > backup.TERMS
        assert list(world.jobs) == ["j1"]
        assert (
            await store.add_request(submit("first", key="first"), by=ANN, at=9.0)
        ).sequence == 1
        assert (
            await store.add_request(submit("new"), by=ANN, at=9.0)
        ).sequence > backup.REQUESTS
        made = await store.commit(
            world.term,
            Changes(
                events=(event("goes on"),),
                receipts=(receipt(job_id(1), kind=ReceiptKind.PREEMPTION),),
            ),
        )
        assert made[0].number == 3
        assert [one.kind for one in await store.receipts(job_id(1))] == [
            "failure",
            "preemption",
        ]
        numbers = [entry.number for entry in await store.audit(limit=99)]
        assert numbers == sorted(set(numbers), reverse=True)
        assert await store.secret("HF_TOKEN") == b"sealed"
        await store.close()

    asyncio.run(go_on())


@pytest.mark.parametrize(
    "bad",
    [
        b"", b"{}", b'["nothing", {}]', b'["users", {"name": "eve"}]', b"\xff",
        b'["secrets", {"name": "A", "sealed": "*", "by": "a", "at": 1.0}]',
    ],
)  # fmt: skip
def test_a_line_that_is_no_row_is_refused_and_nothing_is_kept(
    written: list[bytes], tmp_path: Path, bad: bytes
) -> None:
    place = on_sqlite(tmp_path / "second.db")
    with pytest.raises(StoreTrouble, match="not a row of a store"):
        filled(place, [*written, bad])
    store = place[1]()

    async def look() -> None:
        assert (await store.lead()).term == 1
        assert await store.users() == []
        assert await store.identity("ab" * 32) is None
        assert await store.named("first") is None
        await store.close()

    asyncio.run(look())
