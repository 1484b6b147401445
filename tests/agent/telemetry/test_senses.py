"""What the agent makes of its sensors' word: the clock's offset, and who was on a sick
device."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from corral.agent.clocks import wall
from corral.agent.telemetry.sampler import Senses
from corral.domain.attempt import Seat
from corral.domain.ids import BootId
from corral.domain.node_signal import SignalKind
from corral.domain.observed_state import AttemptKey, Phase
from tests.agent.bench import NODE, FakeRanks, key_of, launch_of, settings_in
from tests.patience import PATIENCE_SECONDS


@asynccontextmanager
async def senses_in(folder: Path) -> AsyncIterator[Senses]:
    senses = Senses(node_dir=folder, settings=settings_in(folder), boot=BootId("b1"))
    try:
        yield senses
    finally:
        await senses.helper.close()


async def ranks_on(*gpus: int) -> tuple[FakeRanks, list[AttemptKey]]:
    """An attempt on each of these GPUs."""
    ranks, keys = FakeRanks(), [key_of(number) for number in range(len(gpus))]
    for key, gpu in zip(keys, gpus, strict=True):
        env = (("PRETEND_GPU_USE", "1"),)
        launch = launch_of(key, seat=Seat(node=NODE, gpus=(gpu,)), env=env)
        await ranks.launch(launch, Path("/"), {})
    return ranks, keys


async def test_the_clocks_offset_is_that_of_the_quickest_round_trip(
    tmp_path: Path,
) -> None:
    async with senses_in(tmp_path) as senses:
        senses.recorded(0, wall() - 3.0, 0.002)
        senses.recorded(0, wall() - 9.0, 0.5)  # the answer was long on its way
        await senses.look()
        assert senses.sample is not None
        assert senses.sample.clock_offset_seconds is not None
        assert abs(senses.sample.clock_offset_seconds - 3.0) < 0.5
        senses.recorded(0, wall() + 2.0, 0.4)  # the quickest since then
        await senses.look()
        assert senses.sample.clock_offset_seconds is not None
        assert abs(senses.sample.clock_offset_seconds + 2.2) < 0.5


async def test_a_pretend_gpu_shows_what_the_job_on_it_says(tmp_path: Path) -> None:
    ranks, _ = await ranks_on(1)
    async with senses_in(tmp_path) as senses:
        senses.attempts = ranks
        await senses.look()
        assert senses.sample is not None
        assert [gpu.utilisation for gpu in senses.sample.gpus] == [0.0, 1.0]


async def test_a_signal_names_those_on_its_device_and_one_of_the_node_all(
    tmp_path: Path,
) -> None:
    ranks, (first, second) = await ranks_on(0, 1)
    async with senses_in(tmp_path) as senses:
        senses.attempts = ranks
        senses.recorded(0, 0.0, 0.0)
        await senses.look()
        (tmp_path / "pretend.json").write_text('{"1": {"lost": true}}')
        await senses.look()
        assert [(one.gpu, one.attempts) for one in senses.signals] == [(1, (second,))]
        ranks.attempts[second] = replace(ranks.attempts[second], phase=Phase.ENDED)
        log = "NVRM: Xid (PCI:0000:01:00): 79, x\nEDAC MC0: 1 UE x\n"
        (tmp_path / "kernel.log").write_text(log)
        await told(senses, 3)
        assert {one.kind: set(one.attempts) for one in senses.signals[1:]} == {
            SignalKind.XID: {second},  # it has ended for it, and is not settled yet
            SignalKind.MEMORY: {first},
        }
        assert [one.number for one in senses.signals] == [1, 2, 3]
        senses.recorded(2, 0.0, 0.0)
        assert [one.number for one in senses.signals] == [3]


async def told(senses: Senses, count: int) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while len(senses.signals) < count:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)


async def test_a_failed_rank_has_the_sensors_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir(exist_ok=True)
    async with senses_in(tmp_path) as senses:
        senses.settings = replace_struct(senses.settings, sample_seconds=3600.0)
        keeping = asyncio.create_task(senses.keep(FakeRanks(), lambda: None))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while senses.sample is None:
                    await asyncio.sleep(0.02)
                first = senses.sample
                senses.look_soon()
                while senses.sample is first:
                    await asyncio.sleep(0.02)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)


@pytest.mark.parametrize("rounds", range(4))
async def test_it_ends_when_it_is_told_to_in_the_moment_in_which_a_rank_fails(
    tmp_path: Path, rounds: int
) -> None:
    """A part that reads on is ended by its batch system a minute later."""
    (tmp_path / "attempts").mkdir(exist_ok=True)
    async with senses_in(tmp_path) as senses:
        keeping = asyncio.create_task(senses.keep(FakeRanks(), lambda: None))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while senses.sample is None:
                await asyncio.sleep(0.02)
        senses.look_soon()
        for _ in range(rounds):
            await asyncio.sleep(0)
        keeping.cancel()
        await asyncio.wait([keeping], timeout=1.0)
        assert keeping.cancelled()
