"""`corral audit --verify` on both databases: over tampering, rotation, backup and two
heads."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg
import pytest

from corral.boot.audit import verify_log
from corral.boot.backup import back_up, restore
from corral.boot.key_rotation import HeadKeys
from corral.boot.secret_encryption import KeyRing
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.stores import open_store, url_in
from corral.domain.errors import CorralError
from corral.domain.requests import Cancel
from corral.domain.users import AuditEntry
from corral.ports.store import Store
from tests.postgres import Server
from tests.store.rows import ANN, submit

TAMPER = (
    (
        "UPDATE audit SET record = replace(record, 'gpt', 'gpu') WHERE number = 2",
        "entry 2,",
    ),
    ("UPDATE audit SET \"by\" = 'eve' WHERE number = 3", "entry 3,"),
    ("UPDATE audit SET at = 0 WHERE number = 3", "entry 3,"),
    ("DELETE FROM audit WHERE number = 2", "entry 2 is missing"),
    ("DELETE FROM audit WHERE number < 3", "entries 1 to 2 are missing"),
    ("UPDATE audit SET link = NULL, seal = NULL", "no link"),
    (
        "UPDATE audit SET seal = NULL WHERE number >= 3",
        "entry 3 and the entries after it",
    ),
    ("DELETE FROM audit", "empty"),
)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> ClusterDir:
    made = ClusterDir(tmp_path / "c")
    made.create()
    if request.param == "postgres":
        server: Server = request.getfixturevalue("postgres")
        file = tmp_path / "store"
        file.write_text(server.database())
        file.chmod(0o600)
        settings = ClusterSettings(store_file=str(file), shared_state=str(tmp_path))
        settings.save(made)
    return made


def url_of(place: ClusterDir) -> str | None:
    return url_in((ClusterSettings.load(place) or ClusterSettings()).store_file)


def run(place: ClusterDir, work: Callable[[Store, KeyRing], Awaitable[None]]) -> None:
    async def whole() -> None:
        keys = KeyRing.load(place.key)
        store = open_store(place, url_of(place), lambda: "c1", keys.seal_link)
        try:
            await work(store, keys)
        finally:
            await store.close()

    asyncio.run(whole())


async def write(store: Store, keys: KeyRing) -> None:
    """Entries of every way to append, several of them in one transaction."""
    await asyncio.gather(
        *(store.add_request(submit("gpt"), by=ANN, at=1.0) for _ in range(3))
    )
    entry = AuditEntry(at=2.0, by=ANN, token=None, what="secret.set", on="A")
    await store.put_secret("A", keys.seal("A", b"v"), by=ANN, at=2.0, entry=entry)
    await store.record(entry)


def execute(place: ClusterDir, *statements: str) -> None:
    """Beside the triggers, as whoever owns the database can."""
    url = url_of(place)
    if url is None:
        with sqlite3.connect(place.database) as raw:
            for name in ("update", "delete", "replace"):
                raw.execute(f"DROP TRIGGER IF EXISTS audit_no_{name}")
            for statement in statements:
                raw.execute(statement)
        raw.close()
        return
    with psycopg.connect(url) as server:
        server.execute("ALTER TABLE audit DISABLE TRIGGER ALL")
        for statement in statements:
            server.execute(statement.encode())


@pytest.mark.parametrize(("statement", "named"), TAMPER)
def test_what_is_done_to_the_log_beside_the_head_is_named(
    place: ClusterDir, statement: str, named: str
) -> None:
    run(place, write)
    whole = verify_log(place, None)
    assert (whole.fault, whole.entries, whole.unchained) == ("", 5, 0)
    execute(place, statement)
    assert named in verify_log(place, None).fault


def test_entries_from_before_the_chain_are_bound_by_its_first_link(
    place: ClusterDir,
) -> None:
    run(place, write)
    # as an older version wrote them
    execute(place, "UPDATE audit SET link = NULL, seal = NULL")
    run(place, write)
    found = verify_log(place, None)
    assert (found.fault, found.entries, found.unchained) == ("", 10, 5)
    execute(place, "DELETE FROM audit WHERE number = 1")
    assert "entry 6," in verify_log(place, None).fault


def test_a_rotated_key_and_a_restored_backup_keep_the_chain(
    place: ClusterDir, tmp_path: Path
) -> None:
    async def rotate(store: Store, keys: KeyRing) -> None:
        await write(store, keys)
        holder = HeadKeys(store=store, ring=keys, wall=lambda: 3.0, several=False)
        await holder.begin()
        said = AuditEntry(at=3.0, by=ANN, token=None, what="key.rotate", on="")
        await holder.rotate(said)

    run(place, rotate)
    assert verify_log(place, None).fault == "", (
        "the rotation has an entry, by the new key"
    )
    if url_of(place) is None:
        file, other = tmp_path / "b", ClusterDir(tmp_path / "other")
        back_up(place, file, 1.0)
        restore(other, file)
        run(other, write)
        found = verify_log(other, None)
        assert (found.fault, found.entries) == ("", 12)
        assert "entries 7" not in verify_log(place, None).fault


def test_two_heads_on_one_store_append_to_one_chain(place: ClusterDir) -> None:
    if url_of(place) is None:
        pytest.skip("a file has one head")

    async def both() -> None:
        keys = KeyRing.load(place.key)
        stores = [
            open_store(place, url_of(place), lambda: "c1", keys.seal_link) for _ in "ab"
        ]
        try:
            await asyncio.gather(
                *(write(store, keys) for store in stores for _ in range(5))
            )
        finally:
            for store in stores:
                await store.close()

    asyncio.run(both())
    found = verify_log(place, None)
    assert (found.fault, found.entries) == ("", 50)


def test_a_change_whose_entry_cannot_be_written_does_not_happen(
    place: ClusterDir,
) -> None:
    run(place, write)
    if url_of(place) is None:
        refuse = "CREATE TRIGGER no BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no'); END"
    else:
        refuse = "ALTER TABLE audit ADD CONSTRAINT no CHECK (number < 6)"
    execute(place, refuse)

    async def ask(store: Store, keys: KeyRing) -> None:
        before = await store.requests_after(0)
        with pytest.raises(CorralError):
            await store.add_request(Cancel(job="j1"), by=ANN, at=3.0)  # type: ignore[arg-type]
        entry = AuditEntry(at=2.0, by=ANN, token=None, what="secret.set", on="B")
        with pytest.raises(CorralError):
            await store.put_secret("B", b"v", by=ANN, at=2.0, entry=entry)
        assert await store.requests_after(0) == before
        assert [name for name, _, _ in await store.secrets()] == ["A"]

    run(place, ask)


def test_a_seal_of_another_cluster_is_none(tmp_path: Path) -> None:
    one, other = (KeyRing.load(tmp_path / name) for name in "ab")
    seal = one.seal_link("ab" * 32)
    assert one.check_link("ab" * 32, seal) is True
    assert one.check_link("cd" * 32, seal) is False
    assert other.check_link("ab" * 32, seal) is None
