"""The process beside the head: it answers, is replaced when it is lost, and ends with
the head."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from corral.boot import forecast_process
from corral.boot.forecast_process import ForetellerProcess
from corral.domain.errors import Trouble
from corral.domain.ids import JobId
from corral.domain.run_history import Question
from tests.patience import PATIENCE_SECONDS
from tests.worlds import Cluster, gang, node


def question(job: str = "j2") -> Question:
    cluster = Cluster(node("n1", gpus=1))
    cluster.submit(gang("first", max_duration_seconds=100.0))
    cluster.submit(gang("second"))
    return Question(
        world=cluster.world, facts=cluster.facts, wall=cluster.wall, serving=cluster.serving,
        runs=(), told=(), job=JobId(job),
    )  # fmt: skip


async def gone(pid: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


def test_it_answers_in_a_process_of_its_own_that_goes_when_it_is_closed() -> None:
    async def tell() -> None:
        process = ForetellerProcess()
        found, none = await asyncio.gather(
            process.forecast(question()), process.forecast(question("j1"))
        )
        assert found is not None
        assert found.starts.high_seconds is not None
        assert 0 <= found.starts.low_seconds <= found.starts.high_seconds <= 100.0
        assert none is None
        pid = process.pid
        assert pid not in (None, os.getpid())
        await process.close()
        await gone(pid or 0)

    asyncio.run(tell())


def test_one_that_is_lost_is_trouble_once_and_then_replaced() -> None:
    async def tell() -> None:
        process = ForetellerProcess()
        assert await process.forecast(question()) is not None
        pid = process.pid or 0
        os.kill(pid, signal.SIGSTOP)
        asking = asyncio.create_task(process.forecast(question()))
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(Trouble):
            await asking
        await gone(pid)
        assert await process.forecast(question()) is not None
        await process.close()

    asyncio.run(tell())


def test_who_is_not_answered_in_time_hears_so_and_the_next_is_not_given_that_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def tell() -> None:
        process = ForetellerProcess()
        assert await process.forecast(question()) is not None
        pid = process.pid or 0
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr(forecast_process, "ANSWER_SECONDS", 0.01)
        with pytest.raises(Trouble):
            await process.forecast(question())
        monkeypatch.setattr(forecast_process, "ANSWER_SECONDS", PATIENCE_SECONDS)
        assert await process.forecast(question("j1")) is None
        await process.close()

    asyncio.run(tell())


def test_it_ends_when_its_pipe_is_closed() -> None:
    async def tell() -> None:
        process = ForetellerProcess()
        assert await process.forecast(question()) is not None
        pid = process.pid or 0
        assert process._helper._process is not None
        assert process._helper._process.stdin is not None
        process._helper._process.stdin.close()
        await gone(pid)
        await process.close()

    asyncio.run(tell())
