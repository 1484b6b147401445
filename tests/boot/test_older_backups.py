"""Backups that an older corral wrote are restored with all they hold."""

import asyncio
import hashlib
import io
import json
import sqlite3
import tarfile
import zlib
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from corral.boot.backup import ABOUT, ROWS, restore
from corral.boot.settings import ClusterDir
from corral.domain.errors import Unsupported
from corral.domain.world import World
from corral.store import backup
from corral.store.schema import heads, metadata
from corral.store.sqlite import SqliteStore
from corral.store.tables import TableStore
from tests.store.upgrades import test_upgrades as upgrades

OLDER = [path for path in upgrades.RELEASED if path.stem[-4:] >= backup.OLDEST]


def lines_of(database: Path) -> bytes:
    """The rows of a store of any schema, as the corral of that schema wrote them."""
    lines = []
    with closing(sqlite3.connect(database)) as raw:
        raw.row_factory = sqlite3.Row
        there = {name for (name,) in raw.execute("SELECT name FROM sqlite_schema")}
        for table in metadata.sorted_tables:
            if table is not heads and table.name in there:
                rows = raw.execute(f'SELECT * FROM "{table.name}"').fetchall()
                lines += [
                    msgspec.json.encode((str(table.name), dict(row))) + b"\n"
                    for row in rows
                ]
    return b"".join(lines)


def backup_of(dump: Path, folder: Path) -> Path:
    rows = lines_of(upgrades.restored(dump, folder / "older.db"))
    about = {
        "form": 1, "corral": "0.1", "revision": dump.stem[-4:], "cluster": "c1", "at": 1.0,
        "rows": rows.count(b"\n"), "sha256": hashlib.sha256(rows).hexdigest(), "snapshots": 0,
        "jobs": 2, "unfinished": 1,
    }  # fmt: skip
    file = folder / "older.backup"
    with tarfile.open(file, "w:gz") as tar:
        for name, content in ((ABOUT, msgspec.json.encode(about)), (ROWS, rows)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file


async def opened(store: TableStore) -> World:
    try:
        assert await store.secret("HF_TOKEN") == b"sealed"
        assert await store.identity("ab" * 32) is not None
        assert len(await store.users()) >= 1
        return await store.lead()
    finally:
        await store.close()


@pytest.mark.parametrize("dump", OLDER, ids=lambda dump: dump.stem)
def test_a_backup_of_an_older_schema_is_restored_with_all_it_holds(
    dump: Path, tmp_path: Path
) -> None:
    place = ClusterDir(tmp_path / "there")
    about = restore(place, backup_of(dump, tmp_path))
    assert about.revision == dump.stem[-4:]
    world = asyncio.run(opened(SqliteStore(place.database)))
    assert world.term > backup.TERMS
    assert (list(world.jobs), list(world.ended)) == (["j1"], ["j2"])
    assert [save.step for save in world.saves["j1"]] == [10, 20]  # type: ignore[index]


@pytest.mark.parametrize(
    ("role", "shared"), [("admin", True), ("user", False), (None, False)]
)
def test_secrets_of_admins_serve_everybody_as_they_did(
    role: str | None, shared: bool, tmp_path: Path
) -> None:
    """As migration 0011 decides it; the secrets of a removed user belong to no user."""
    dump = next(path for path in OLDER if path.stem[-4:] == "0010")
    older = tmp_path / dump.name
    user = json.dumps(
        {"name": "ann", "role": role, "created_at": 1.0, "disabled": False}
    )
    row = f"INSERT INTO users VALUES ('ann', '{user}', {zlib.crc32(user.encode())});\n"
    older.write_text(dump.read_text() + (row if role else ""))
    place = ClusterDir(tmp_path / "there")
    restore(place, backup_of(older, tmp_path))
    with closing(sqlite3.connect(place.database)) as raw:
        found = raw.execute('SELECT "by", everybody FROM secrets').fetchall()
    assert found == [("ann" if role else "(removed)", int(shared))]


def test_a_backup_from_before_the_oldest_readable_schema_is_refused(
    tmp_path: Path,
) -> None:
    before = next(path for path in reversed(upgrades.RELEASED) if path not in OLDER)
    place = ClusterDir(tmp_path / "there")
    with pytest.raises(Unsupported, match=f"schema version {before.stem[-4:]}"):
        restore(place, backup_of(before, tmp_path))
    assert not place.database.exists()
