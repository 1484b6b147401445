"""Every schema that was ever released opens, with all it held. A migration is never edited."""

import asyncio
import hashlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from corral.domain.errors import CorralError
from corral.domain.moves import JobState
from corral.domain.people import Role
from corral.domain.world import Changes, World
from corral.store import migrations, schema
from corral.store.sqlite import SqliteStore, opening
from corral.store.sqlite.database import connect
from corral.store.tables import TableStore
from tests.store.rows import ANN, event, submit

HERE = Path(__file__).parent
RELEASED = sorted(HERE.glob("schema-*.sql"))
VERSIONS = Path(migrations.__file__).parent / "versions"
NEVER_EDITED = {  # migration -> digest; a released one keeps its line for ever
    "m0001_first.py": "17e612ae6e858e16f4d5207fbbbab6e893520d19f69f792d3cd1423d2e8963a4",
    "m0002_queues.py": "005ff0df23b95cf013f6255b1e9e6b3e00981d5d7355f8ce2276e3e072a79bd4",
    "m0003_people.py": "9e14b8923df823665d068e8c7c343631bc4c6f4f687a24de56736f702838ae62",
    "m0004_told.py": "f3ddc1e743eeade918261721903143f8e852cb510a9ad7073cc0fa806af004d6",
    "m0005_leader.py": "f39e50770c34e0af0a2dd547fd576e5b060fca3c20d5471874e7a626869c530f",
    "m0006_heads.py": "a707ddd9f116ab026d3208a08064535d8ce6c8b7725422d753dbc7e53ef1c665",
    "m0007_imported.py": "24b9dcea6a5862262b07d3211eb0d86df129717f404364a888ddf5ec834e49fd",
    "m0008_debts.py": "6ee22f0544bd0f87cd3d5862650b1a12569fbcd861a1de6ba2c56cc70e840333",
    "m0009_accounts.py": "9b2b5625a0ba6298cdc583bab8c5b4305332966153106eb475ab01dbee3e0edd",
}


def restored(dump: Path, path: Path) -> Path:
    """The store of that dump. A dump does not hold the pragmas of the header."""
    with sqlite3.connect(path) as raw:
        raw.executescript(dump.read_text())
        raw.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        raw.execute("PRAGMA journal_mode = WAL")
    raw.close()
    return path


def shape(path: Path) -> set[str]:
    """Every table and index as SQL, but for spelling: spaces, and quotes around names."""
    with sqlite3.connect(path) as raw:
        rows = raw.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    raw.close()
    return {"".join(sql.split()).replace('"', "") for (sql,) in rows}


async def read(store: TableStore) -> World:
    try:
        world = await store.lead()
        assert (await store.wish(submit("again", key="first"), by=ANN, at=9.0)).sequence == 1
        assert [one.text for one in await store.events(after=0, job=None, limit=9)][0] == "began"
        assert await store.secret("HF_TOKEN") == b"sealed"
        identity = await store.identity("ab" * 32)
        assert identity is not None
        token, user = identity
        assert (token.user, token.role, token.id) == ("admin", Role.ADMIN, "tabababababab")
        assert user is not None
        assert (user.name, user.role, user.disabled) == ("admin", Role.ADMIN, False)
        assert len(await store.attempts(next(iter(world.jobs)))) == 2
        assert len(await store.receipts(next(iter(world.jobs)))) == 1
        await store.commit(world.term, Changes(events=(event("went on"),)))
        return world
    finally:
        await store.close()


@pytest.mark.parametrize("dump", RELEASED, ids=lambda dump: dump.stem)
def test_a_released_schema_opens_with_all_it_held(dump: Path, tmp_path: Path) -> None:
    world = asyncio.run(read(SqliteStore(restored(dump, tmp_path / "corral.db"))))
    assert world.cluster == "c1"
    assert {id: job.state for id, job in world.jobs.items()} == {"j1": JobState.RUNNING}
    assert world.ended == {"j2": JobState.DONE}
    assert len(world.nodes) == 2
    assert [save.step for save in world.saves["j1"]] == [10, 20]  # type: ignore[index]
    assert len(world.allocations) == 1


def test_tokens_of_before_there_were_users_go_on_as_users_and_nodes(tmp_path: Path) -> None:
    path = restored(HERE / "schema-0001.sql", tmp_path / "corral.db")
    with sqlite3.connect(path) as raw:
        raw.executemany(
            "INSERT INTO tokens VALUES (?, ?, ?)",
            [
                ("cd" * 32, "n1", "node:n1"),
                ("01" * 32, "né ☃", "user"),
                ("02" * 32, "admin", "user"),
                ("03" * 32, "odd", "king"),
                ("04" * 32, "n9", "node:"),
            ],
        )
    raw.close()

    async def look() -> None:
        store = SqliteStore(path)
        try:
            users = {user.name: user.role for user in await store.users()}
            assert users == {"admin": Role.ADMIN, "né ☃": Role.USER}
            tokens = {token.sha256[:2]: (token.user, token.role) for token in await store.tokens()}
            assert tokens == {
                "ab": ("admin", Role.ADMIN),
                "cd": ("n1", Role.NODE),
                "01": ("né ☃", Role.USER),
                "02": ("admin", Role.USER),
            }
            assert await store.audit(limit=9) == []
        finally:
            await store.close()

    asyncio.run(look())


@pytest.mark.parametrize("dump", RELEASED, ids=lambda dump: dump.stem)
def test_an_upgraded_store_has_the_tables_of_a_new_one(dump: Path, tmp_path: Path) -> None:
    asyncio.run(read(SqliteStore(restored(dump, tmp_path / "old.db"))))
    SqliteStore(tmp_path / "new.db")
    assert shape(tmp_path / "old.db") == shape(tmp_path / "new.db")


def test_there_is_a_dump_of_every_released_schema() -> None:
    assert [dump.stem for dump in RELEASED] == [
        f"schema-{file.name[1:5]}" for file in sorted(VERSIONS.glob("m*.py"))
    ]
    assert RELEASED[-1].stem == f"schema-{schema.REVISION}"


def test_the_migrations_alone_make_the_tables_of_a_new_store(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "new.db")
    sqlite3.connect(tmp_path / "empty.db").close()
    with connect(tmp_path / "empty.db", write=True) as connection:
        migrations.run_scripts(connection)
    connection.engine.dispose()
    assert shape(tmp_path / "empty.db") == shape(tmp_path / "new.db")


def test_a_released_migration_is_never_edited() -> None:
    digests = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in VERSIONS.glob("m*.py")
    }
    assert digests == NEVER_EDITED


NEXT_REVISION = f"{int(schema.REVISION) + 1:04d}"
NEXT = """
from alembic import op
from sqlalchemy import Column, Text

revision = "{next}"
down_revision = "{newest}"


def upgrade() -> None:
    op.add_column("tokens", Column("note", Text))
    op.execute("UPDATE tokens SET note = 'from before'")
    {then}
"""


def with_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str) -> Path:
    """A store of the newest schema, opened by a corral that knows the next one."""
    scripts = tmp_path / "scripts"
    shutil.copytree(VERSIONS.parent, scripts)
    text = NEXT.format(then=then, next=NEXT_REVISION, newest=schema.REVISION)
    (scripts / "versions" / f"m{NEXT_REVISION}_next.py").write_text(text)
    monkeypatch.setattr(migrations, "SCRIPTS", scripts)
    monkeypatch.setattr(opening, "REVISION", NEXT_REVISION)
    return restored(HERE / f"schema-{schema.REVISION}.sql", tmp_path / "corral.db")


def test_an_older_store_is_upgraded_once_and_a_copy_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = with_next(tmp_path, monkeypatch, then="")
    for _ in range(2):
        assert list(asyncio.run(read(SqliteStore(path))).jobs) == ["j1"]
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT DISTINCT note FROM tokens").fetchall() == [("from before",)]
        revision = raw.execute("SELECT version_num FROM alembic_version").fetchall()
        assert revision == [(NEXT_REVISION,)]
    raw.close()
    copy = tmp_path / f"corral.db.schema-{schema.REVISION}"
    assert copy.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(opening, "REVISION", schema.REVISION)
    assert list(asyncio.run(read(SqliteStore(copy))).jobs) == ["j1"]


@pytest.mark.parametrize(
    "then",
    ["raise RuntimeError('cut')", "op.execute('DELETE FROM jobs')", "op.execute('no SQL')"],
    ids=["cut short", "rows left alone", "no SQL"],
)
def test_an_upgrade_that_fails_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    path = with_next(tmp_path, monkeypatch, then)
    before = shape(path)
    with pytest.raises(CorralError) as found:
        SqliteStore(path)
    assert schema.REVISION in found.value.message
    assert "as it was" in found.value.message
    assert shape(path) == before
    monkeypatch.setattr(opening, "REVISION", schema.REVISION)
    assert list(asyncio.run(read(SqliteStore(path))).jobs) == ["j1"]
