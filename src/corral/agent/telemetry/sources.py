"""Sources of GPU samples on a node: the model of pretend GPUs, AMD's kernel drivers, or
NVIDIA's library."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from corral.agent.clocks import wall
from corral.agent.discovery.helper import amd_gpus, pretend_gpus
from corral.agent.processes import children, descendants
from corral.agent.telemetry import amd
from corral.agent.telemetry.amd_smi import AmdSmi
from corral.agent.telemetry.guarded_call import GuardedCall
from corral.agent.telemetry.kernel_log import Bus
from corral.agent.telemetry.messages import Happening, HeldAttempt
from corral.agent.telemetry.pretend import Pretend, ProcessWork
from corral.domain.observed_state import AttemptKey
from corral.domain.pilot import node_of
from corral.domain.resources import Gpu
from corral.domain.telemetry import GpuSample
from corral.engines.local.processes import stat_of
from corral.wire.node import NodeSettings

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
# in the node's folder: what its pretend GPUs shall say otherwise
FAULTS: Final = "pretend.json"


class GpuSource(Protocol):
    """A source of GPU samples. `begin` starts a reading, with the running attempts and
    their shims. `end` completes the reading: it returns a sample of each GPU, and
    whether the whole driver is silent."""

    def begin(
        self, held: Sequence[HeldAttempt], shims: Mapping[int, AttemptKey]
    ) -> None: ...

    def end(self, deadline: float) -> tuple[tuple[GpuSample, ...], bool]: ...

    def at(self, bus: Bus) -> int | None:
        """Return Corral's index of the GPU at this place of the PCI bus; None without
        one."""
        ...

    def confirms(self) -> bool:
        """Return whether the driver itself reports faults. If so, a fault in the
        kernel's log counts only with the driver's report."""
        ...

    def gone(self) -> bool:
        """Return whether a restart of the reader process would find more GPUs."""
        ...


def source_of(
    settings: NodeSettings, node_dir: Path, tell: Callable[[Happening], None]
) -> GpuSource:
    numbers = settings.gpu_numbers
    # a part without GPUs asks no driver
    if settings.pretend_gpus is not None or numbers == ():
        return PretendGpus(
            Pretend(_renumber_gpus(pretend_gpus(settings), settings)), node_dir / FAULTS
        )
    if settings.amd_gpus:
        root, gpus, smi = Path(settings.sensors_root), amd_gpus(settings), AmdSmi()
        return AmdGpus(GuardedCall(lambda: amd.read(root, gpus, smi)))
    from corral.agent.telemetry.nvidia import Nvidia  # its library is large

    return Nvidia(settings.real_gpus, tell, numbers)


def _renumber_gpus(gpus: tuple[Gpu, ...], settings: NodeSettings) -> tuple[Gpu, ...]:
    """Return the GPUs with the indices that the head uses. Their uuids are derived from
    node and index, so that a GPU has the same uuid in each part of the node."""
    if settings.gpu_numbers is None:
        return gpus
    node = node_of(settings.node)
    return tuple(
        replace(gpu, index=number, uuid=f"pretend-{node}-{number}")
        for number, gpu in zip(settings.gpu_numbers, gpus, strict=False)
    )


@dataclass(slots=True)
class PretendGpus:
    """Pretend GPUs as a source of samples. Each GPU is at the PCI bus whose number is
    the GPU's index."""

    model: Pretend
    faults: Path
    _newest: tuple[GpuSample, ...] = ()

    def begin(
        self, held: Sequence[HeldAttempt], shims: Mapping[int, AttemptKey]
    ) -> None:
        ranks = {key: tuple(children(shim)) for shim, key in shims.items()}
        work = {key: work_below(shim) for shim, key in shims.items()}
        sampled_at = wall()
        try:
            self._newest = self.model.read(
                held, ranks, sampled_at, faults(self.faults), work
            )
        except ValueError as wrong:
            print(f"{self.faults} is ignored: {wrong}", file=sys.stderr, flush=True)
            self._newest = self.model.read(held, ranks, sampled_at, {}, work)

    def end(self, deadline: float) -> tuple[tuple[GpuSample, ...], bool]:
        return self._newest, False

    def at(self, bus: Bus) -> int | None:
        is_present = any(gpu.index == bus[1] for gpu in self.model.gpus)
        return bus[1] if is_present and bus[::2] == (0, 0) else None

    def confirms(self) -> bool:
        return False

    def gone(self) -> bool:
        return False


def work_below(shim: int) -> ProcessWork:
    """Return the CPU time and memory of all descendants of the shim with this pid,
    including the CPU time of their children that have ended."""
    seconds, pages = 0.0, 0
    for pid in descendants(shim):
        # fields 14 to 17 and 24 of /proc/PID/stat
        if (stat := stat_of(pid)) is not None:
            seconds += sum(map(int, stat[11:15])) / _TICKS + _waited_seconds(pid)
            pages += int(stat[21])
    return ProcessWork(cpu_seconds=seconds, memory_bytes=pages * _PAGE_BYTES)


def _waited_seconds(pid: int) -> float:
    """Return how long the process was ready to run while no CPU was free. The time
    counts as busy time, so that a process on a full machine is not taken for idle.

    Source: Linux, Documentation/scheduler/sched-stats.rst; 0 where the kernel does not
    count it.
    """
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


@dataclass(slots=True)
class AmdGpus:
    part: GuardedCall[tuple[GpuSample, ...]]
    _newest: tuple[GpuSample, ...] = field(default=())

    def begin(
        self, held: Sequence[HeldAttempt], shims: Mapping[int, AttemptKey]
    ) -> None:
        self.part.begin()

    def end(self, deadline: float) -> tuple[tuple[GpuSample, ...], bool]:
        gpu_samples = self.part.end(deadline - time.monotonic())
        if gpu_samples is not None:
            self._newest = gpu_samples
            return gpu_samples, False
        silent = (
            GpuSample(index=gpu_sample.index, uuid=gpu_sample.uuid, silent=True)
            for gpu_sample in self._newest
        )
        return tuple(silent), True

    def at(self, bus: Bus) -> int | None:
        return None  # the kernel's log names XIDs of NVIDIA's only

    def confirms(self) -> bool:
        return False

    def gone(self) -> bool:
        return False


def faults(file: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the sample fields that the file overrides for pretend GPUs, by GPU index;
    empty without a valid file."""
    with suppress(OSError, ValueError):
        return msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, Any]])
    return {}
