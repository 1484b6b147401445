"""A check-up that is wanted of a node: done once, told as signals, ended at once for
work."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from corral.agent.checks.runner import Checks
from corral.agent.discovery.helper import pretend_gpus
from corral.agent.telemetry.sampler import Senses
from corral.domain.active_checks import QUICK, WHOLE, CheckUp
from corral.domain.ids import BootId
from corral.domain.node_signal import OVER, Signal, SignalKind
from corral.domain.observed_state import Phase
from corral.domain.resources import Inventory
from tests.agent.bench import bench, key_of, launch_of, settings_in
from tests.patience import PATIENCE_SECONDS

ONE = CheckUp(id="7", kinds=QUICK, by="ada", at=0.0, until=60.0, seconds=0.1)
HANGS = """import os, sys, time
sys.stdin.readline()
with open(sys.argv[1] + "/pid", "w") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""


@asynccontextmanager
async def checks_in(
    folder: Path, *, hangs: bool = False, idle: bool = True
) -> AsyncIterator[Checks]:
    settings = settings_in(folder)
    senses = Senses(node_dir=folder, settings=settings, boot=BootId("b1"))
    senses.recorded(0, 0.0, 0.0)
    checks = Checks(
        node_dir=folder,
        settings=settings,
        senses=senses,
        inventory=lambda: Inventory(gpus=pretend_gpus(settings)),
        is_idle=lambda: idle,
    )
    if hangs:
        checks.command = (sys.executable, "-c", HANGS)
    try:
        yield checks
    finally:
        await checks.close()


async def told(checks: Checks, count: int) -> tuple[Signal, ...]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(checks.senses.signals) < count:
            await asyncio.sleep(0.005)
    return checks.senses.signals


async def pid_in(folder: Path) -> int:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (folder / "pid").exists() or not (folder / "pid").read_text():
            await asyncio.sleep(0.005)
    return int((folder / "pid").read_text())


async def test_each_result_is_a_signal_and_the_last_ends_the_round(
    tmp_path: Path,
) -> None:
    async with checks_in(tmp_path) as checks:
        checks.want(ONE)
        signals = await told(checks, 5)
        assert {one.kind for one in signals} == {SignalKind.CHECK}
        assert {one.checkup for one in signals} == {"7"}
        assert [(one.device, one.gpu, one.code) for one in signals] == [
            ("matmul", 0, 0),
            ("memory", 0, None),
            ("matmul", 1, 0),
            ("memory", 1, None),
            (OVER, None, None),
        ]


async def test_a_round_that_is_still_wanted_is_not_done_twice(tmp_path: Path) -> None:
    async with checks_in(tmp_path) as checks:
        checks.want(ONE)
        await told(checks, 5)
        checks.want(ONE)
        checks.want(replace(ONE, id="8"))
        assert [one.checkup for one in await told(checks, 10)] == ["7"] * 5 + ["8"] * 5


async def test_what_is_to_run_ends_it_at_once_and_that_is_told(tmp_path: Path) -> None:
    async with checks_in(tmp_path, hangs=True) as checks:
        checks.want(ONE)
        pid = await pid_in(tmp_path)
        await checks.clear()
        assert not os.path.exists(f"/proc/{pid}")
        (last,) = await told(checks, 1)
        assert (last.device, last.code) == (OVER, 2)


async def test_what_is_wanted_no_more_ends_and_the_next_is_done_when_it_is_said_again(
    tmp_path: Path,
) -> None:
    async with checks_in(tmp_path, hangs=True) as checks:
        checks.want(ONE)
        pid = await pid_in(tmp_path)
        checks.want(None)
        await told(checks, 1)
        assert not os.path.exists(f"/proc/{pid}")


async def test_nothing_is_checked_beside_what_runs(tmp_path: Path) -> None:
    async with checks_in(tmp_path, idle=False) as checks:
        checks.want(ONE)
        await asyncio.sleep(0)
        assert checks._task is None


async def test_one_that_fails_to_run_ends_the_round_untested(tmp_path: Path) -> None:
    async with checks_in(tmp_path) as checks:
        checks.command = (sys.executable, "-c", "import sys; sys.exit(1)")
        checks.want(ONE)
        (last,) = await told(checks, 1)
        assert (last.device, last.code) == (OVER, 2)


async def test_what_is_injected_is_what_a_pretend_node_shows(tmp_path: Path) -> None:
    faults = (
        '{"checks": {"matmul/1": "wrong", "memory/0": 0.5, "disk": 0.001, "clock": -3}}'
    )
    (tmp_path / "pretend.json").write_text(faults)
    async with checks_in(tmp_path) as checks:
        checks.want(replace(ONE, kinds=WHOLE))
        signals = {
            (one.device.partition(":")[0], one.gpu): one
            for one in await told(checks, 8)
        }
        assert signals["matmul", 1].code == 1
        assert signals["matmul", 0].code == 0
        half, whole = signals["memory", 0].value, signals["memory", 1].value
        assert half is not None
        assert whole is not None
        assert half < 0.6 * whole
        assert (signals["disk", None].value or 1e9) < 1e8
        assert signals["clock", None].value == -3


async def test_a_job_that_comes_to_an_agent_ends_its_check_before_it_starts(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as here:
        settings_in(tmp_path)
        here.agent.checks.command = (sys.executable, "-c", HANGS)
        await here.head.want(1, checkup=ONE)
        pid = await pid_in(tmp_path)
        await here.head.want(2, run=(launch_of(key_of(1)),))
        await here.until(lambda: here.ranks.launched == [key_of(1)])
        assert not os.path.exists(f"/proc/{pid}")


async def test_an_agent_with_something_running_begins_no_check(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        settings_in(tmp_path)
        await here.head.want(1, run=(launch_of(key_of(1)),))
        await here.until(
            lambda: here.ranks.seen() and here.ranks.seen()[0].phase == Phase.UP
        )
        await here.head.want(2, run=(launch_of(key_of(1)),), checkup=ONE)
        await here.until(
            lambda: (
                here.head.wanted and here.agent.version() == here.head.wanted.version
            )
        )
        assert here.agent.checks._task is None


class Slow:
    """Checks that take their time to end."""

    def __init__(self) -> None:
        self.asked, self.ended = asyncio.Event(), asyncio.Event()

    def want(self, checkup: CheckUp | None) -> None:
        pass

    async def clear(self) -> None:
        self.asked.set()
        await self.ended.wait()


async def test_no_rank_begins_before_the_check_has_ended(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        slow = here.agent.obedience.checks = Slow()
        await here.head.want(1, run=(launch_of(key_of(1)),))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await slow.asked.wait()
        for _ in range(50):  # all else that it needs is ready meanwhile
            await asyncio.sleep(0)
        assert here.ranks.launched == []
        slow.ended.set()
        await here.until(lambda: here.ranks.launched == [key_of(1)])
