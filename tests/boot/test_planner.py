"""Plans are made beside the head: in a bounded line, within a time, and for each user's
seconds."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from corral.api.errors import TooMany
from corral.boot import planner_process
from corral.boot.planner_process import MOST_OF_ONE_USER, PlannerProcess
from corral.domain.errors import Refusal, Trouble
from corral.domain.ids import UserName
from tests.patience import PATIENCE_SECONDS

ANN, BOB = UserName("ann"), UserName("bob")
SMALL = json.dumps({"gpus": 1024, "days": 30}).encode()


class Seconds:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_plan_is_made_in_a_process_of_its_own_that_goes_when_it_is_closed() -> None:
    async def ask() -> None:
        process = PlannerProcess(clock=Seconds(), hourly_seconds=900.0)
        report = json.loads(await process.plan("reliability", SMALL, by=ANN))
        assert report["verdict"]
        with pytest.raises(Refusal) as refused:
            await process.plan("reliability", b'{"gpus": 1024, "days": 0}', by=ANN)
        assert refused.value.message == "days cannot be 0"
        pid = process.pid or 0
        assert pid not in (0, os.getpid())
        await process.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.01)

    asyncio.run(ask())


def test_one_that_takes_too_long_is_ended_and_the_next_plan_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ask() -> None:
        process = PlannerProcess(clock=Seconds(), hourly_seconds=900.0)
        await process.plan("reliability", SMALL, by=ANN)
        os.kill(process.pid or 0, signal.SIGSTOP)
        monkeypatch.setattr(planner_process, "PLAN_SECONDS", 0.05)
        with pytest.raises(Trouble, match=r"not ready within 0\.05 s"):
            await process.plan("reliability", SMALL, by=ANN)
        monkeypatch.setattr(planner_process, "PLAN_SECONDS", PATIENCE_SECONDS)
        assert await process.plan("reliability", SMALL, by=ANN)
        await process.close()

    asyncio.run(ask())


class Stuck:
    """A helper that answers when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.go_on = asyncio.Event()

    async def ask(self, question: object, seconds: float) -> bytes:
        assert callable(question)
        self.asked += 1
        question()
        await self.go_on.wait()
        raise EOFError


def test_one_user_fills_the_line_for_nobody_else() -> None:
    async def ask() -> None:
        process = PlannerProcess(clock=Seconds(), hourly_seconds=900.0)
        stuck = Stuck()
        process._helper = stuck  # type: ignore[assignment]
        plans = [
            asyncio.create_task(process.plan("cost", b"{}", by=ANN))
            for _ in range(MOST_OF_ONE_USER)
        ]
        await asyncio.sleep(0)
        with pytest.raises(TooMany, match="too many plans .*: 4 of ann, 4 in total"):
            await process.plan("cost", b"{}", by=ANN)
        plans.append(asyncio.create_task(process.plan("cost", b"{}", by=BOB)))
        await asyncio.sleep(0)
        assert stuck.asked == MOST_OF_ONE_USER + 1
        stuck.go_on.set()
        assert all(
            isinstance(one, Trouble)
            for one in await asyncio.gather(*plans, return_exceptions=True)
        )
        with pytest.raises(Trouble):
            await process.plan("cost", b"{}", by=ANN)

    asyncio.run(ask())


def test_seconds_of_planning_are_counted_for_each_user_and_come_back() -> None:
    async def ask() -> None:
        clock = Seconds()
        process = PlannerProcess(clock=clock, hourly_seconds=90.0)

        class Slow(Stuck):
            async def ask(self, question: object, seconds: float) -> bytes:
                assert callable(question)
                question()
                clock.now += 30.0
                raise EOFError

        process._helper = Slow()  # type: ignore[assignment]
        for _ in range(4):  # 0.75 s of them come back meanwhile
            with pytest.raises(Trouble):
                await process.plan("cost", b"{}", by=ANN)
        with pytest.raises(TooMany, match="the 90 s of computing time") as refused:
            await process.plan("cost", b"{}", by=ANN)
        assert 1000 < refused.value.retry_seconds < 1200
        with pytest.raises(Trouble):
            await process.plan("cost", b"{}", by=BOB)
        clock.now += refused.value.retry_seconds
        with pytest.raises(Trouble):
            await process.plan("cost", b"{}", by=ANN)

    asyncio.run(ask())
