"""NVIDIA's GPUs through a fake libnvidia-ml.so.1, compiled here, whose words a file
holds."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from corral.agent.telemetry.helper import SensorHelper
from corral.agent.telemetry.messages import Happening, SampleRequest
from corral.agent.telemetry.sampler import Senses
from corral.domain.ids import BootId
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.telemetry import GpuSample, NodeSample, NvLink
from tests.agent.bench import FakeRanks, agent_in, running
from tests.agent.fakehead import FakeHead
from tests.agent.telemetry.nvidia_machine import Machine, compiled
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(tmp_path: Path, library: Path) -> Machine:
    return Machine(tmp_path, library)


@asynccontextmanager
async def reading(
    machine: Machine,
) -> AsyncIterator[tuple[SensorHelper, list[Happening]]]:
    told: list[Happening] = []
    helper = machine.helper(happened=told.append)
    try:
        yield helper, told
    finally:
        await helper.close()


async def sample(helper: SensorHelper) -> NodeSample:
    found = await helper.ask(SampleRequest())
    assert found is not None
    return found.sample


async def until(told: list[Happening], count: int) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while len(told) < count:
        assert asyncio.get_running_loop().time() < deadline, (
            f"{len(told)} of {count} came"
        )
        await asyncio.sleep(0.005)


async def test_a_driver_before_510_counts_what_it_reserves_as_used(
    machine: Machine,
) -> None:
    machine.say(gpu0_memory_mb=1000, gpu0_old_memory=1)
    async with reading(machine) as (helper, _):
        first, second = (await sample(helper)).gpus
    assert first.memory_used_bytes == 1_000_000_000 + 645_922_816
    assert second.memory_used_bytes == 0


def _say_all_of_the_first_gpu(machine: Machine) -> None:
    machine.say(
        gpu0_use=50, gpu0_memory_use=20, gpu0_memory_mb=1000, gpu0_power_mw=650000
    )
    machine.say(gpu0_heat=71, gpu0_throttle=0x44, gpu0_ecc__0__0=1, gpu0_ecc__1__0=2)
    machine.say(
        gpu0_ecc__0__1=3, gpu0_ecc__1__1=4, gpu0_remap__pending=1, gpu0_replays=5
    )
    machine.say(
        gpu0_remap__corrected=6, gpu0_remap__uncorrected=7, gpu0_lanes=8, gpu0_pcie=4
    )
    machine.say(gpu0_field__91=2, gpu0_link__1=0, gpu0_link__0__0=8, gpu0_link__0__1=9)
    machine.say(
        gpu0_link__0__2=10, gpu0_field__82=66, gpu0_pcie_kb=3, gpu0_pid=os.getpid()
    )
    machine.say(
        gpu0_encoder=40, gpu0_decoder=0, gpu0_field__138__all=5, gpu0_field__139__all=2
    )


async def test_all_that_the_driver_says_is_in_the_sample(machine: Machine) -> None:
    _say_all_of_the_first_gpu(machine)
    async with reading(machine) as (helper, _):
        first, second = (await sample(helper)).gpus
    assert first == GpuSample(
        index=0,
        uuid="GPU-0",
        type="h100",
        utilisation=0.5,
        memory_utilisation=0.2,
        encoder_utilisation=0.4,
        decoder_utilisation=0.0,
        memory_used_bytes=1_000_000_000,
        memory_total_bytes=80 * 1024**3,
        power_watts=650.0,
        power_limit_watts=700.0,
        energy_joules=1.0,
        temperature_celsius=71,
        memory_temperature_celsius=66,
        sm_clock_mhz=1980,
        memory_clock_mhz=1980,
        throttle=("sw_power_cap", "hw_thermal_slowdown"),
        ecc_volatile_corrected=1,
        ecc_volatile_uncorrected=2,
        ecc_aggregate_corrected=3,
        ecc_aggregate_uncorrected=4,
        remapped_corrected=6,
        remapped_uncorrected=7,
        remap_pending=True,
        remap_failed=False,
        pcie_generation=4,
        pcie_width=8,
        pcie_generation_most=5,
        pcie_width_most=16,
        pcie_replays=5,
        pcie_sent_bytes_per_second=3000.0,
        pcie_received_bytes_per_second=3000.0,
        nvlink_bytes=7 * 1024,
        nvlinks=(
            NvLink(link=0, up=True, crc_errors=10, replays=8, recoveries=9),
            NvLink(link=1, up=False),
        ),
        processes=first.processes,
    )
    assert [(one.pid, one.job) for one in first.processes] == [(os.getpid(), None)]
    assert (second.uuid, second.nvlinks, second.processes) == ("GPU-1", (), ())
    assert second.pcie_sent_bytes_per_second is None, "the driver does not say"


async def test_use_is_the_mean_of_the_drivers_samples_where_it_keeps_some(
    machine: Machine,
) -> None:
    machine.say(gpu0_use=99, gpu0_sample=30)
    async with reading(machine) as (helper, _):
        assert (await sample(helper)).gpus[0].utilisation == 0.35
        assert (await sample(helper)).gpus[0].utilisation == 0.55, (
            "only those since then"
        )


async def test_bytes_over_pcie_are_the_rise_of_the_counters_where_there_are_some(
    machine: Machine,
) -> None:
    machine.say(gpu0_field__197=1000, gpu0_field__198=0, gpu0_pcie_kb=7)
    async with reading(machine) as (helper, _):
        assert (await sample(helper)).gpus[0].pcie_sent_bytes_per_second is None
        machine.say(gpu0_field__197=900_001_000)
        sent = (await sample(helper)).gpus[0].pcie_sent_bytes_per_second
    assert sent is not None
    assert sent > 900_000_000 / PATIENCE_SECONDS


async def test_bytes_over_nvlinks_are_the_rise_of_the_counters_of_all_links(
    machine: Machine,
) -> None:
    machine.say(gpu0_field__138__all=10, gpu0_field__139__all=0, gpu0_field__138=5)
    async with reading(machine) as (helper, _):
        first, second = (await sample(helper)).gpus
        assert (first.nvlink_sent_bytes_per_second, second.nvlink_bytes) == (None, None)
        machine.say(gpu0_field__138__all=900_010)
        one = (await sample(helper)).gpus[0]
    assert one.nvlink_bytes == 900_010 * 1024
    assert one.nvlink_sent_bytes_per_second is not None
    assert one.nvlink_sent_bytes_per_second > 900_000 * 1024 / PATIENCE_SECONDS
    assert one.nvlink_received_bytes_per_second == 0.0


async def test_activity_of_the_engines_is_the_mean_between_two_readings(
    machine: Machine,
) -> None:
    machine.say(gpu0_use=99, gpu0_gpm__engine=50, gpu0_gpm__tensor=20)
    async with reading(machine) as (helper, _):
        first = (await sample(helper)).gpus[0]
        assert (first.graphics_active, first.tensor_active) == (None, None)
        machine.say(gpu0_gpm__engine=70, gpu0_gpm__tensor=40)
        second, older = (await sample(helper)).gpus
        assert (second.graphics_active, second.tensor_active) == (0.6, 0.3)
        assert (older.graphics_active, older.tensor_active) == (None, None), (
            "it has no GPM"
        )
        machine.say(gpu0_gpm__tensor=-1)
        third = (await sample(helper)).gpus[0]
    assert (third.graphics_active, third.tensor_active) == (0.7, None)


async def test_counters_of_links_are_read_anew_when_those_of_all_have_risen(
    machine: Machine,
) -> None:
    machine.say(gpu0_field__91=1, gpu0_field__52=0)
    async with reading(machine) as (helper, _):
        assert (await sample(helper)).gpus[0].nvlinks == (NvLink(link=0, up=True),)
        machine.say(gpu0_link__0__0=4, gpu0_field__52=4)
        assert (await sample(helper)).gpus[0].nvlinks == (
            NvLink(link=0, up=True, replays=4),
        )


async def test_a_gpu_that_is_lost_is_told_as_lost_and_the_others_as_ever(
    machine: Machine,
) -> None:
    async with reading(machine) as (helper, _):
        assert not any(gpu.lost for gpu in (await sample(helper)).gpus)
        machine.say(gpu1_lost=1)
        first, second = (await sample(helper)).gpus
    assert (first.lost, second.lost) == (False, True)
    assert first.power_watts == 70.0
    assert (second.uuid, second.power_watts) == ("GPU-1", None)


async def test_a_gpu_that_hangs_is_silent_within_the_deadline_and_the_others_answer(
    machine: Machine,
) -> None:
    async with reading(machine) as (helper, _):
        await sample(helper)
        machine.say(gpu0_hang=1, gpu1_use=40)
        for _ in range(2):
            first, second = (await sample(helper)).gpus
            assert (first.silent, second.silent) == (True, False)
            assert second.utilisation == 0.4
        machine.say(gpu0_hang=0)
        while (await sample(helper)).gpus[0].silent:
            await asyncio.sleep(0.01)


async def test_without_a_driver_there_are_no_gpus_and_nothing_is_silent(
    machine: Machine,
) -> None:
    machine.say(no_driver=1)
    async with reading(machine) as (helper, _):
        found = await sample(helper)
    assert (found.gpus, found.silent) == ((), ())


async def test_an_xid_is_told_at_once_by_nvml_and_by_the_kernels_log(
    machine: Machine,
) -> None:
    async with reading(machine) as (helper, told):
        await sample(helper)
        machine.say(xid=1, xid__gpu=1, xid__code=94)
        await until(told, 1)
        machine.log(
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
        )
        await until(told, 2)
        machine.say(xid=2, xid__gpu=0, xid__code=154, gpu0_field__230=1)
        await until(told, 3)
    assert [(one.kind, one.code, one.gpu, one.recovery) for one in told] == [
        (SignalKind.XID, 94, 1, ""),
        (SignalKind.XID, 79, 0, ""),
        (SignalKind.XID, 154, 0, "GPU Reset"),
    ]


@pytest.fixture
def beats(tmp_path: Path) -> FakeHead:
    return FakeHead(file=tmp_path / "head.json")


async def test_a_driver_that_hangs_is_a_signal_and_beats_go_on(
    machine: Machine, beats: FakeHead
) -> None:
    senses = Senses(
        node_dir=machine.folder, settings=machine.settings, boot=BootId("b1")
    )
    senses.helper.command = machine.helper().command
    await beats.start()
    try:
        async with running(agent_in(machine.folder, FakeRanks(), [], senses=senses)):
            await beats.until(lambda: any(beat.sample for beat in beats.beats))
            machine.say(gpu1_hang=1)
            before = len(beats.beats)
            look = asyncio.create_task(senses.look())
            await beats.until(lambda: told_by(beats))
            await look
            assert [(one.kind, one.gpu) for one in told_by(beats)] == [
                (SignalKind.SILENT, 1)
            ]
            assert len(beats.beats) - before >= 2, "the agent waits for nobody"
    finally:
        await beats.die()


def told_by(head: FakeHead) -> tuple[Signal, ...]:
    return head.beats[-1].signals
