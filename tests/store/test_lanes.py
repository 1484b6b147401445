"""The writer's thread: what waits together is one transaction, and everybody gets an
answer."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from corral.domain.errors import (
    InvariantBroken,
    SpecInvalid,
    StoreTrouble,
    Unrecordable,
)
from corral.domain.ids import job_id
from corral.domain.world import Changes
from corral.store.sqlite import SqliteStore, database
from tests.store.rows import ANN, attempt, event, job, spec, submit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "corral.db"


def test_a_burst_of_500_submits_is_a_handful_of_transactions(path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(path)
        await store.lead()
        before = store.counts.transactions
        asks = (
            store.add_request(submit(f"job-{i}", key=f"k{i}"), by=ANN, at=1.0)
            for i in range(500)
        )
        await asyncio.gather(*asks)
        assert store.counts.transactions - before <= 20
        assert store.counts.members == 501
        await store.close()

    asyncio.run(scenario())


def test_a_caller_that_went_away_takes_nobody_with_it(path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(path)
        term = (await store.lead()).term
        tasks = [
            asyncio.create_task(store.commit(term, Changes(jobs=(job(i),))))
            for i in range(1, 30)
        ]
        await asyncio.sleep(0)
        tasks[3].cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [i for i, one in enumerate(ended) if isinstance(one, BaseException)] == [
            3
        ]
        assert len((await store.lead()).jobs) == 29  # what was handed over is done
        await store.close()

    asyncio.run(scenario())


def test_a_closed_store_answers_with_trouble_and_may_be_closed_again(
    path: Path,
) -> None:
    async def scenario() -> None:
        store = SqliteStore(path)
        waiting = asyncio.gather(
            *(store.add_request(submit(), by=ANN, at=1.0) for _ in range(9))
        )
        await asyncio.sleep(0)
        await store.close()
        assert len(await waiting) == 9  # what waited was finished first
        await store.close()
        with pytest.raises(StoreTrouble, match="closed"):
            await store.add_request(submit(), by=ANN, at=1.0)
        with pytest.raises(StoreTrouble, match="closed"):
            await store.jobs(final=True, limit=1)

    asyncio.run(scenario())


def test_a_store_that_another_process_holds_is_trouble_that_passes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.store.sqlite.database.BUSY_MILLISECONDS", 50)

    async def scenario() -> None:
        store = SqliteStore(path)
        await store.lead()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        ended = await asyncio.gather(
            *(store.add_request(submit(), by=ANN, at=1.0) for _ in range(50)),
            return_exceptions=True,
        )
        assert {type(one) for one in ended} == {StoreTrouble}
        assert "fuser" in ended[0].hint  # type: ignore[union-attr]
        assert await store.job(job_id(1)) is None  # reads go on
        other.execute("ROLLBACK")
        other.close()
        assert (await store.add_request(submit(), by=ANN, at=1.0)).sequence == 1
        await store.close()

    asyncio.run(scenario())


def test_a_commit_too_large_for_the_disk_fails_alone(path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(path)
        term = (await store.lead()).term
        await store._writer.ask(
            lambda db: db.exec_driver_sql("PRAGMA max_page_count = 200").all()
        )
        sizes = [1, 1, 2_000_000, 1, 1]
        asks = [
            store.commit(term, Changes(jobs=(job(number, reason="x" * size),)))
            for number, size in enumerate(sizes, start=1)
        ]
        ended = await asyncio.gather(*asks, return_exceptions=True)
        assert [type(one) for one in ended] == [list, list, StoreTrouble, list, list]
        assert "free space" in ended[2].hint  # type: ignore[union-attr]
        assert list((await store.lead()).jobs) == ["j1", "j2", "j4", "j5"]
        await store.close()

    asyncio.run(scenario())


def test_what_would_not_read_back_is_never_written(path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(path)
        term = (await store.lead()).term
        for bad in (job(1, reason="\ud800"), job(1, ended_at=float("nan"))):
            with pytest.raises(InvariantBroken):
                await store.commit(term, Changes(jobs=(bad,), events=(event(),)))
        torn = Changes(jobs=(job(2),), attempts=(attempt(job_id(2), culprit="\ud800"),))
        whole = store.commit(term, Changes(events=(event("beside it"),)))
        ended = await asyncio.gather(
            store.commit(term, torn), whole, return_exceptions=True
        )
        assert [type(one) for one in ended] == [Unrecordable, list]
        asked = submit("x")
        bad_request = type(asked)(
            specs=(spec("x", max_duration_seconds=float("inf")),), key="k"
        )
        with pytest.raises(SpecInvalid):
            await store.add_request(bad_request, by=ANN, at=1.0)
        assert (await store.lead()).jobs == {}
        assert await store.requests_after(0) == []
        await store.close()

    asyncio.run(scenario())


def test_the_log_is_moved_into_the_file_while_the_store_works(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CHECKPOINT_ROWS", 50)

    async def scenario() -> None:
        store = SqliteStore(path)
        term = (await store.lead()).term
        for number in range(1, 400):
            await store.commit(term, Changes(jobs=(job(number, reason="x" * 2000),)))
        assert store.counts.checkpoints > 5
        assert Path(f"{path}-wal").stat().st_size < path.stat().st_size
        await store.close()

    asyncio.run(scenario())


def test_opening_a_store_of_this_version_loads_no_migration(path: Path) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from corral.store.sqlite import SqliteStore

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    await store.lead()
    await store.close()

asyncio.run(main())
sys.exit("corral.store.migrations" in sys.modules)
"""
    source = str(Path(__file__).parents[2] / "src")
    command = [sys.executable, "-W", "error", "-c", code, str(path)]
    assert (
        subprocess.run(command, env={"PYTHONPATH": source}, check=False).returncode == 0
    )
