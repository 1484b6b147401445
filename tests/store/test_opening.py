"""What is opened: a whole store of this version, and nothing else. A refusal touches
nothing."""

import asyncio
import hashlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corral.domain.errors import CorralError, StoreTrouble, Unsupported
from corral.domain.ids import JobId
from corral.domain.job_states import JobState
from corral.domain.world import Changes
from corral.store.sqlite import SqliteStore
from tests.patience import PATIENCE_SECONDS
from tests.store.rows import ANN, attempt, event, job, node, receipt, save, submit

JOBS = [JobId(f"j{number}") for number in range(1, 41)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "corral.db"


async def fill(store: SqliteStore) -> None:
    world = await store.lead()
    states = [JobState.DONE if i % 3 else JobState.RUNNING for i in range(len(JOBS))]
    await store.add_request(submit("waits", key="k"), by=ANN, at=1.0)
    await store.commit(
        world.term,
        Changes(
            jobs=tuple(job(i + 1, state) for i, state in enumerate(states)),
            attempts=tuple(attempt(id) for id in JOBS),
            saves=tuple(save(id, 5) for id in JOBS),
            receipts=tuple(receipt(id) for id in JOBS),
            nodes=tuple(node(f"n{i}") for i in range(8)),
            events=tuple(event(f"event {i}", id) for i, id in enumerate(JOBS)),
        ),
    )
    for text in ("later", "last"):
        await store.commit(world.term, Changes(events=(event(text),)))


def filled(path: Path, *, clean: bool) -> None:
    """A store with something of every kind, closed, or cut off with its log still
    there."""

    async def scenario() -> None:
        store = SqliteStore(path.with_name("first.db"))
        await fill(store)
        if clean:
            await store.close()
        for suffix in ("", "-wal"):
            source = Path(f"{path.with_name('first.db')}{suffix}")
            if source.exists():
                shutil.copy(source, f"{path}{suffix}")
        await store.close()

    asyncio.run(scenario())


def content(path: Path) -> list[Any]:
    """All that the store answers."""

    async def scenario() -> list[Any]:
        store = SqliteStore(path)
        try:
            world = await store.lead()
            world.term = 0
            of_job = [
                (
                    await store.attempts(id),
                    await store.saves(id),
                    await store.receipts(id),
                )
                for id in JOBS
            ]
            listed = await store.jobs(final=True, limit=99)
            events = await store.events(after=0, job=None, limit=99)
            return [world, await store.requests_after(0), listed, events, of_job]
        finally:
            await store.close()

    return asyncio.run(scenario())


def digests(directory: Path) -> dict[str, str]:
    """Of all that holds content: the index of a log is made anew by any reader."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in directory.iterdir()
        if not file.name.endswith("-shm") and file.is_file() and file.stat().st_size
    }


def test_the_files_are_for_their_owner_alone(path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(path)
        await fill(store)
        assert {file.name for file in path.parent.iterdir()} >= {
            "corral.db",
            "corral.db-wal",
        }
        assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
            0o600
        }
        await store.close()

    asyncio.run(scenario())


def test_a_store_that_was_closed_is_one_file(path: Path) -> None:
    filled(path, clean=True)
    content(path)
    assert sorted(file.name for file in path.parent.glob("corral.db*")) == ["corral.db"]


def test_the_cluster_has_the_same_id_for_ever_and_another_store_another(
    tmp_path: Path,
) -> None:
    first, again, other = (
        content(tmp_path / name)[0].cluster for name in ("a", "a", "b")
    )
    assert first == again != other


def altered(statement: str) -> Callable[[Path], None]:
    def alter(path: Path) -> None:
        filled(path, clean=True)
        with sqlite3.connect(path) as raw:
            raw.execute(statement)
        raw.close()

    return alter


def other_program(path: Path) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE jobs (id)")
    raw.close()


def log_alone(path: Path) -> None:
    filled(path, clean=False)
    path.unlink()


REFUSED: list[tuple[str, Callable[[Path], Any], type[CorralError], str]] = [
    (
        "newer",
        altered("UPDATE alembic_version SET version_num = '0999'"),
        Unsupported,
        "0999",
    ),
    ("other program", other_program, Unsupported, "another program"),
    (
        "no database",
        lambda path: path.write_text("hello " * 1000),
        StoreTrouble,
        "not a database",
    ),
    ("log alone", log_alone, StoreTrouble, "is missing"),
    ("directory", lambda path: path.mkdir(), StoreTrouble, "corral.db"),
]


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [row[1:] for row in REFUSED],
    ids=[row[0] for row in REFUSED],
)
def test_what_is_no_store_of_this_version_is_refused_and_left_alone(
    path: Path, make: Callable[[Path], Any], kind: type[CorralError], said: str
) -> None:
    make(path)
    before = digests(path.parent)
    with pytest.raises(kind, match=said) as found:
        SqliteStore(path)
    assert found.value.hint
    assert str(path) in found.value.message
    assert digests(path.parent) == before


def test_a_newer_store_whose_log_was_left_is_refused_with_its_log_untouched(
    path: Path,
) -> None:
    async def scenario() -> None:
        store = SqliteStore(path.with_name("first.db"))
        await fill(store)
        with sqlite3.connect(path.with_name("first.db")) as raw:
            raw.execute("UPDATE alembic_version SET version_num = '0999'")
        raw.close()
        for suffix in ("", "-wal"):
            shutil.copy(f"{path.with_name('first.db')}{suffix}", f"{path}{suffix}")
        await store.close()

    asyncio.run(scenario())
    before = digests(path.parent)
    with pytest.raises(Unsupported, match="0999"):
        SqliteStore(path)
    assert digests(path.parent) == before


def test_a_directory_that_is_not_there_is_trouble(tmp_path: Path) -> None:
    with pytest.raises(StoreTrouble, match="cannot be opened") as found:
        SqliteStore(tmp_path / "nowhere" / "corral.db")
    assert "exists" in found.value.hint


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "cut off"])
@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_byte_is_refused_or_changes_no_row(
    path: Path, clean: bool, seed: int
) -> None:
    """But for the last transaction of a log: there it looks like a write that was never
    synced."""
    filled(path, clean=clean)
    whole = {
        suffix: Path(f"{path}{suffix}").read_bytes()
        for suffix in ("", *["-wal"] * (not clean))
    }
    expected = content(path)
    chance = random.Random(seed)
    refused = 0
    for _ in range(25):
        for file in path.parent.glob("corral.db*"):
            file.unlink()
        for suffix, data in whole.items():
            bent = bytearray(data)
            if suffix == ("" if clean else "-wal"):
                place = chance.randrange(len(bent))
                bent[place] ^= 1 << chance.randrange(8)
            Path(f"{path}{suffix}").write_bytes(bent)
        try:
            found = content(path)
        except CorralError as error:
            refused += bool(error.hint)
        else:
            in_last = not clean and [*found[3], expected[3][-1]] == expected[3]
            found[3] = expected[3] if in_last else found[3]
            assert found == expected, f"byte {place} of {path.name}{suffix}"
    assert refused > 2


def test_a_table_whose_name_is_no_text_any_more_is_damage_and_told_as_such(
    path: Path,
) -> None:
    filled(path, clean=True)
    data = path.read_bytes()
    assert data.count(b"tablejobsjobs") == 1  # its kind and its names, in the schema
    path.write_bytes(data.replace(b"tablejobsjobs", b"tablejo\xe5sjobs"))
    with pytest.raises(StoreTrouble, match="damaged") as found:
        SqliteStore(path)
    assert ".recover" in found.value.hint


def test_a_torn_page_is_refused_with_the_way_to_save_what_is_left(path: Path) -> None:
    filled(path, clean=True)
    data = bytearray(path.read_bytes())
    data[4096 * 9 : 4096 * 9 + 2048] = bytes(2048)
    path.write_bytes(data)
    before = digests(path.parent)
    with pytest.raises(StoreTrouble, match="damaged|malformed") as found:
        SqliteStore(path)
    assert ".recover" in found.value.hint
    assert digests(path.parent) == before


FULL = """
import asyncio, resource, sys
from pathlib import Path
from corral.domain.errors import StoreTrouble
from corral.domain.world import Changes
from corral.store.sqlite import SqliteStore
from tests.store.rows import ANN, event, job, submit

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    term = (await store.lead()).term
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    written, trouble = [], None
    for number in range(1, 200):
        try:
            await store.commit(term, Changes(jobs=(job(number, reason="x" * 3000),)))
            written.append(f"j{number}")
        except StoreTrouble as error:
            trouble = error
            break
    assert trouble is not None and str(sys.argv[1]) in trouble.message and trouble.hint
    assert written, "nothing could be written at all"
    stored = 0
    try:
        while stored < 100:
            await store.add_request(submit(), by=ANN, at=1.0)
            stored += 1
    except StoreTrouble:
        pass
    assert stored < 100, "requests were acknowledged on a full disk"
    assert [job.id for job in reversed(await store.jobs(final=True, limit=999))] == written
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    world = await store.lead()
    assert list(world.jobs) == written
    assert (await store.add_request(submit(), by=ANN, at=1.0)).sequence == stored + 1
    await store.commit(world.term, Changes(events=(event(),)))
    await store.close()

asyncio.run(main())
"""


def test_a_full_disk_is_trouble_reads_go_on_and_so_does_the_store_when_there_is_room(
    path: Path,
) -> None:
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", FULL, str(path)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
