"""What the agent of one attempt reads and tells of a machine that it shares with
others."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from corral.agent.telemetry.nvml import called
from corral.agent.telemetry.process_owner import attributed
from corral.agent.telemetry.sampler import Senses
from corral.domain.attempt import Seat
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.observed_state import AttemptKey
from corral.domain.pilot import may_tell, part_of
from corral.domain.telemetry import GpuProcess
from corral.wire.node import NodeSettings, encode_settings
from tests.agent.bench import FakeRanks, launch_of
from tests.agent.telemetry.nvidia_machine import Machine, compiled
from tests.patience import PATIENCE_SECONDS

N1 = NodeId("n1")
KEY: AttemptKey = (JobId("j1"), AttemptNumber(1))
ABSENT_PID = 2**22  # beyond the most that Linux gives


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("nvml"))


@asynccontextmanager
async def part(
    folder: Path, settings: NodeSettings, gpus: int
) -> AsyncIterator[Senses]:
    """Its senses, whose attempt counts its GPUs from 0 on."""
    settings = msgspec.structs.replace(settings, node=part_of(N1, KEY))
    (folder / "node.json").touch(mode=0o600)
    (folder / "node.json").write_bytes(encode_settings(settings))
    ranks = FakeRanks()
    seat = Seat(node=N1, gpus=tuple(range(gpus)))
    env = (("PRETEND_GPU_USE", "0.9"),)
    await ranks.launch(launch_of(KEY, seat=seat, env=env), Path("/"), {})
    senses = Senses(
        node_dir=folder, settings=settings, boot=BootId("b1"), attempts=ranks
    )
    senses.recorded(0, 0.0, 0.0)
    try:
        yield senses
    finally:
        await senses.helper.close()


async def until_told(senses: Senses, count: int) -> tuple[Signal, ...]:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while len(senses.signals) < count:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)
    return senses.signals


async def test_a_part_reads_its_own_gpus_by_the_heads_numbers_and_tells_of_no_other(
    tmp_path: Path, library: Path
) -> None:
    machine = Machine(tmp_path, library)
    machine.say(
        gpu1_use=50, gpu1_pid=ABSENT_PID, gpu1_remap__failed=1, gpu0_remap__failed=1
    )
    settings = msgspec.structs.replace(
        machine.settings, real_gpus=(1,), gpu_numbers=(6,)
    )
    async with part(machine.folder, settings, gpus=1) as senses:
        senses.helper.command = machine.helper().command
        await senses.look()
        sample = senses.sample
        assert sample is not None
        (gpu,) = sample.gpus
        assert (gpu.index, gpu.uuid, gpu.utilisation) == (6, "GPU-1", 0.5)
        assert [(one.job, one.attempt) for one in gpu.processes] == [KEY]
        assert sample.memory_total_bytes
        assert [disk.path for disk in sample.disks] == [str(tmp_path.parent)]
        machine.say(xid=1, xid__gpu=1, xid__code=94)
        await until_told(senses, 2)
        for line in (
            # GPU 0: others'
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
            "EDAC MC0: 1 UE x",
            "NVRM: Xid (PCI:0000:3c:00): 79, pid=1, GPU has fallen off the bus.",
        ):
            machine.log(line)
        told = await until_told(senses, 3)
    assert [(one.kind, one.code, one.gpu, one.uuid) for one in told] == [
        (SignalKind.REMAP, 1, 6, "GPU-1"),
        (SignalKind.XID, 94, 6, "GPU-1"),
        (SignalKind.XID, 79, 6, "GPU-1"),
    ]
    assert {one.attempts for one in told} == {(KEY,)}
    assert told[1].text == "GPU 6: XID 94 (GPU-1)"
    assert [one.lasting for one in told] == [True, False, False]


async def test_a_part_that_was_granted_no_gpu_asks_no_driver_and_knows_the_machine(
    tmp_path: Path, library: Path
) -> None:
    machine = Machine(tmp_path, library)
    machine.say(gpu0_hang=1, gpu1_hang=1)
    settings = msgspec.structs.replace(machine.settings, gpu_numbers=())
    async with part(machine.folder, settings, gpus=0) as senses:
        senses.helper.command = machine.helper().command
        await senses.look()
        assert senses.sample is not None
        assert (senses.sample.gpus, senses.sample.silent) == ((), ())
        assert senses.sample.memory_total_bytes


async def test_of_a_gpu_that_is_cut_a_part_says_nothing(
    tmp_path: Path, library: Path
) -> None:
    machine = Machine(tmp_path, library)
    machine.say(gpu0_mig=1)
    settings = msgspec.structs.replace(
        machine.settings, real_gpus=(0, 1), gpu_numbers=(0, 1)
    )
    async with part(machine.folder, settings, gpus=2) as senses:
        senses.helper.command = machine.helper().command
        await senses.look()
        assert senses.sample is not None
        assert [gpu.index for gpu in senses.sample.gpus] == [1]


async def test_pretend_gpus_of_a_part_show_its_attempt_by_the_heads_numbers(
    tmp_path: Path,
) -> None:
    settings = NodeSettings(
        node=N1,
        head_file="/head.json",
        pretend_gpus=2,
        gpu_numbers=(2, 5),
        gpu_type="h100",
    )
    async with part(tmp_path, settings, gpus=1) as senses:
        await senses.look()
        assert senses.sample is not None
        first, second = senses.sample.gpus
    assert [(one.index, one.uuid) for one in (first, second)] == [
        (2, "pretend-n1-2"),
        (5, "pretend-n1-5"),
    ]
    assert first.utilisation
    assert first.utilisation > 0.5
    assert second.utilisation == 0.0


@pytest.mark.parametrize(
    ("there", "chosen", "numbers", "found"),
    [
        ((0, 1, 2, 3), None, None, [(0, 0), (1, 1), (2, 2), (3, 3)]),
        ((0, 1, 2, 3), (3, 1, 9), None, [(0, 3), (1, 1)]),
        ((0, 1), (0, 1), (4, 6), [(4, 0), (6, 1)]),  # a step that sees no others
        # one that sees all of the machine
        ((0, 1, 2, 3), (2, 3), (4, 6), [(4, 2), (6, 3)]),
        ((0,), (0, 1), (4, 6), [(4, 0)]),  # the other is lost
        ((0, 1), None, (4, 6), [(4, 0), (6, 1)]),
        ((0, 1, 2, 3), None, (4, 6), []),  # which two are its own is not known
        ((0, 1), (), (), []),
    ],
)
def test_numbers_are_of_the_gpus_that_were_granted_or_of_none(
    there: tuple[int, ...],
    chosen: tuple[int, ...] | None,
    numbers: tuple[int, ...] | None,
    found: list[tuple[int, int]],
) -> None:
    assert called(there, chosen, numbers) == found


def test_a_process_that_cannot_be_looked_up_is_of_whom_the_gpu_is_granted_to() -> None:
    elsewhere, stranger = GpuProcess(pid=ABSENT_PID), GpuProcess(pid=os.getpid())
    found = attributed((elsewhere, stranger), {}, KEY)
    assert [(one.job, one.attempt) for one in found] == [KEY, (None, None)]
    assert [one.job for one in attributed((elsewhere,), {})] == [None]


@pytest.mark.parametrize("kind", SignalKind)
def test_a_part_tells_what_a_driver_says_of_a_gpu_and_nothing_of_the_machine(
    kind: SignalKind,
) -> None:
    of_a_gpu = Signal(number=1, at=1.0, kind=kind, text="x", gpu=0)
    of_the_node = Signal(number=1, at=1.0, kind=kind, text="x", device="mlx5_0")
    told = {"xid", "ecc", "remap", "nvlink", "pcie", "throttle", "gpu-lost"}
    assert (may_tell(of_a_gpu), may_tell(of_the_node)) == (kind in told, False)
