"""Logs and snapshots go with the jobs that are forgotten, and no other."""

import asyncio
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from corral.boot.retention_sweep import (
    UNASKED_SECONDS,
    keep_swept,
    sweep_files,
    sweep_logs,
    sweep_snapshots,
)
from corral.domain.batch import FileId
from corral.domain.ids import ClusterId, JobId, Sequence, job_id
from corral.domain.job_states import JobState
from corral.domain.world import Changes, World
from corral.store.memory_store import MemoryStore
from tests.patience import PATIENCE_SECONDS
from tests.store.rows import batch, job, spec, stored_file

KEPT = ("j2", "j3_1", "j9", "j10_0", "other")
GONE = ("j1", "j3_0", "j4_1_0")


def world() -> World:
    one = World(cluster=ClusterId("c"), term=1, granted=Sequence(8))
    one.ended = dict.fromkeys([JobId("j2"), JobId("j3_1")], JobState.DONE)
    return one


def filled(logs: Path) -> None:
    for name in (*KEPT, *GONE):
        (logs / name / "1").mkdir(parents=True)
        (logs / name / "1" / "rank-0.log").write_text("so\n")


def left(logs: Path) -> list[str]:
    return sorted(path.name for path in logs.iterdir())


def test_the_logs_of_forgotten_jobs_go_and_all_others_stay(tmp_path: Path) -> None:
    asyncio.run(sweep_logs(world(), tmp_path / "none yet"))
    filled(tmp_path)
    asyncio.run(sweep_logs(world(), tmp_path))
    assert left(tmp_path) == sorted(KEPT)


def test_it_looks_at_the_start_and_whenever_more_are_forgotten(tmp_path: Path) -> None:
    async def until(names: tuple[str, ...]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while left(tmp_path) != sorted(names):
                await asyncio.sleep(0.01)

    async def tell() -> None:
        control: Any = mock.Mock(world=world(), store=MemoryStore(), trouble="")
        control.keeping.forgotten = 0
        control.clock.wall.return_value = 0.0
        about: Any = mock.Mock(
            logs=tmp_path, snapshots=tmp_path / "none", files=tmp_path / "none"
        )
        sweeping = asyncio.create_task(keep_swept(control, about))
        await until(KEPT)
        del control.world.ended[JobId("j2")]
        control.keeping.forgotten = 1
        await until(KEPT[1:])
        sweeping.cancel()
        with suppress(asyncio.CancelledError):
            await sweeping

    filled(tmp_path)
    with mock.patch("corral.boot.retention_sweep.LOOK_SECONDS", 0.01):
        asyncio.run(tell())


def test_a_snapshot_stays_while_a_job_runs_in_it_or_somebody_has_just_asked(
    tmp_path: Path,
) -> None:
    used, asked, unused = ("a" * 64, "b" * 64, "c" * 64)

    async def tell() -> None:
        store = MemoryStore()
        await sweep_snapshots(store, tmp_path / "none yet", 0.0)
        term = (await store.lead()).term
        rows = (job(1, JobState.DONE, spec=spec("a", workdir=used)), job(2))
        await store.commit(term, Changes(jobs=rows))
        for name in (used, asked, unused):
            (tmp_path / f"{name}.tar.gz").write_bytes(b"content")
        (tmp_path / "cut.part").touch()
        (tmp_path / "note").touch()
        for path in tmp_path.iterdir():
            os.utime(path, (1000.0, 1000.0))
        now = 2000.0 + UNASKED_SECONDS
        os.utime(tmp_path / f"{asked}.tar.gz", (now - 5.0, now - 5.0))
        await sweep_snapshots(store, tmp_path, now)
        assert left(tmp_path) == [f"{used}.tar.gz", f"{asked}.tar.gz", "note"]
        await store.commit(term, Changes(forgotten=(job_id(1),)))
        await sweep_snapshots(store, tmp_path, now)
        assert left(tmp_path) == [f"{asked}.tar.gz", "note"]

    asyncio.run(tell())


def test_files_go_when_they_expire_unless_a_batch_reads_them(tmp_path: Path) -> None:
    store = MemoryStore()

    async def scenario() -> None:
        now = time.time()
        for id, expires_at in (("old", now), ("read", now), ("new", now + 100.0)):
            await store.put_file(replace(stored_file(id), expires_at=expires_at))
        await store.put_batch(replace(batch(), input_file=FileId("read")))
        for name in ("old", "read", "new", "unknown", "cut.part", "young.part"):
            (tmp_path / name).write_text("x")
            os.utime(tmp_path / name, (1.0, 1.0))
        os.utime(tmp_path / "young.part")
        await sweep_files(store, tmp_path, now)
        assert [file.id for file in await store.files()] == ["read", "new"]

    asyncio.run(scenario())
    assert left(tmp_path) == ["new", "read", "young.part"]
