"""Log folders go with the jobs that are forgotten, and no other."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

from corral.boot.sweep import keep_swept, sweep
from corral.domain.ids import ClusterId, JobId, Sequence
from corral.domain.moves import JobState
from corral.domain.world import World
from tests.patience import PATIENCE_SECONDS

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
    asyncio.run(sweep(world(), tmp_path / "none yet"))
    filled(tmp_path)
    asyncio.run(sweep(world(), tmp_path))
    assert left(tmp_path) == sorted(KEPT)


def test_it_looks_at_the_start_and_whenever_more_are_forgotten(tmp_path: Path) -> None:
    async def until(names: tuple[str, ...]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while left(tmp_path) != sorted(names):
                await asyncio.sleep(0.01)

    async def tell() -> None:
        control: Any = mock.Mock(world=world())
        control.keeping.forgotten = 0
        sweeping = asyncio.create_task(keep_swept(control, tmp_path))
        await until(KEPT)
        del control.world.ended[JobId("j2")]
        control.keeping.forgotten = 1
        await until(KEPT[1:])
        sweeping.cancel()
        with suppress(asyncio.CancelledError):
            await sweeping

    filled(tmp_path)
    with mock.patch("corral.boot.sweep.LOOK_SECONDS", 0.01):
        asyncio.run(tell())
