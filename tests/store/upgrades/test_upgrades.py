"""Every schema that was ever released opens, with all it held. A migration is never
edited."""

import asyncio
import hashlib
import shutil
import sqlite3
import zlib
from pathlib import Path

import pytest

from corral.domain.errors import CorralError
from corral.domain.job_states import JobState
from corral.domain.users import Role
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
    "m0001_first.py": "d8aaf72d98aa15c556e644c8c271608e5568dcab970327846afb23e79a0fb6e3",
    "m0002_queues.py": "a3759d878f590e99177e98b769a8ced7879e828446b82ebf36bd255376db936d",
    "m0003_people.py": "928950cc6e99e11d2c43c783ae563000efeaf047fef767276d19c88d9adf1e40",
    "m0004_told.py": "887a1c1a7e7b8592801b86cc1e5ba427306c7d221097c2efdce29e280a98c8a7",
    "m0005_leader.py": "c4d0bb015269e8bac738f968e5028dd071ddcdb5cc025bd44c6d0449420c25d5",
    "m0006_heads.py": "f4fdd6c84cda6c1ce694c7709c131a3af6c4e325e63266b5953cdac02f2995f7",
    "m0007_imported.py": "553377f09e3718b8ca5e642bd466463d853c33e9fa8623e4cc757141d4d2d54e",
    "m0008_debts.py": "45482da0fe517fed596ffaee3239a4e581382daeda365cbdbf1c38e5e7f39518",
    "m0009_accounts.py": "493ba4cb028ae0b2307e712358284d0ddcf484362da46d22e7f1450566b9f577",
    "m0010_audit_chain.py": "82b652f64ab9f6a17826ffe82ee5324f143a688262de4f203cf24d620c390c6d",
    "m0011_secrets.py": "b74dfe4cb19b87dde4432833604784bd35c9d13271fb668df7c5cfb8ca643403",
    "m0012_specs.py": "ecf2df6e71d0b3f66c32124f4aaad11cfba8e88c0071538ac4c60b8644cb2bf6",
    "m0013_field_names.py": "ee9a320a5cd619e9ec3a325e97b21c1ac58950f382fe95aef53c01bd7350c9b6",
    "m0014_services.py": "4518b4fcbf9316da1d1a0a3ad52df81845993d9c216fb8fe0f7394891fdcb4f3",
    "m0015_batches.py": "6c90f81343794eb4d62e16b8325814c3045e31a6e4ae07a01417f7b2a607fdd5",
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
    """Every table and index as SQL, but for spelling: spaces, and quotes around
    names."""
    with sqlite3.connect(path) as raw:
        rows = raw.execute(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL"
        ).fetchall()
    raw.close()
    return {"".join(sql.split()).replace('"', "") for (sql,) in rows}


async def read(store: TableStore) -> World:
    try:
        world = await store.lead()
        assert (
            await store.add_request(submit("again", key="first"), by=ANN, at=9.0)
        ).sequence == 1
        assert [one.text for one in await store.events(after=0, job=None, limit=9)][
            0
        ] == "began"
        assert await store.secret("HF_TOKEN") == b"sealed"
        identity = await store.identity("ab" * 32)
        assert identity is not None
        token, user = identity
        assert (token.user, token.role, token.id) == (
            "admin",
            Role.ADMIN,
            "tabababababab",
        )
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


def test_tokens_of_before_there_were_users_go_on_as_users_and_nodes(
    tmp_path: Path,
) -> None:
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
            tokens = {
                token.sha256[:2]: (token.user, token.role)
                for token in await store.tokens()
            }
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


def test_secrets_of_admins_go_on_for_everybody_and_those_of_removed_users_are_nobodys(
    tmp_path: Path,
) -> None:
    path = restored(HERE / "schema-0009.sql", tmp_path / "corral.db")
    with sqlite3.connect(path) as raw:
        raw.execute("DELETE FROM secrets")
        rows = [("SHARED", "admin"), ("LEFT", "removed"), ("OWN", "né")]
        raw.executemany("INSERT INTO secrets VALUES (?, x'00', ?, 1.0)", rows)
        record = '{"name": "né", "role": "user", "created_at": 1.0}'
        crc = zlib.crc32(record.encode())
        raw.execute("INSERT INTO users VALUES ('né', ?, ?)", (record, crc))
    raw.close()

    async def look() -> None:
        store = SqliteStore(path)
        try:
            owners = {name: by for name, by, _ in await store.secrets()}
            assert owners == {"SHARED": "admin", "LEFT": "(removed)", "OWN": "né"}
            assert await store.secrets_for_everybody() == {"SHARED"}
        finally:
            await store.close()

    asyncio.run(look())


@pytest.mark.parametrize("dump", RELEASED, ids=lambda dump: dump.stem)
def test_an_upgraded_store_has_the_tables_of_a_new_one(
    dump: Path, tmp_path: Path
) -> None:
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
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in VERSIONS.glob("m*.py")
    }
    assert digests == NEVER_EDITED


NEXT_REVISION = f"{int(schema.REVISION) + 1:04d}"
NEXT = """
from corral.store.migrations.operations import op

revision = "{next}"
down_revision = "{newest}"


def upgrade() -> None:
    op.execute("ALTER TABLE tokens ADD COLUMN note TEXT")
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
        assert raw.execute("SELECT DISTINCT note FROM tokens").fetchall() == [
            ("from before",)
        ]
        revision = raw.execute("SELECT version_num FROM alembic_version").fetchall()
        assert revision == [(NEXT_REVISION,)]
    raw.close()
    copy = tmp_path / f"corral.db.schema-{schema.REVISION}"
    assert copy.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(opening, "REVISION", schema.REVISION)
    assert list(asyncio.run(read(SqliteStore(copy))).jobs) == ["j1"]


@pytest.mark.parametrize(
    "then",
    [
        "raise RuntimeError('cut')",
        "op.execute('DELETE FROM jobs')",
        "op.execute('no SQL')",
    ],
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
    assert "is unchanged" in found.value.message
    assert shape(path) == before
    monkeypatch.setattr(opening, "REVISION", schema.REVISION)
    assert list(asyncio.run(read(SqliteStore(path))).jobs) == ["j1"]
