"""Readings of pretend GPUs, derived from the processes that run on them. No I/O.

A GPU is as busy as the processes of the attempts that hold it: their CPU time is
divided among the GPUs that they hold on the node. A rank that sleeps is idle. The
memory of the processes counts as used memory of the GPU; power, clocks and temperature
follow from the utilisation. A job can set PRETEND_GPU_USE and PRETEND_GPU_MEMORY in its
`env` (shares from 0 to 1 of the time and of the memory) to show other values.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec

from corral.agent.telemetry.messages import HeldAttempt
from corral.domain.observed_state import AttemptKey
from corral.domain.resources import Gpu
from corral.domain.telemetry import GpuProcess, GpuSample

USE: Final = "PRETEND_GPU_USE"
MEMORY: Final = "PRETEND_GPU_MEMORY"
# Power limits in W as the makers' data sheets name them; a type that is not here
# pretends to 300.
_LIMIT_WATTS: Final = {
    "b200": 1000,
    "h200": 700,
    "h100": 700,
    "gh200": 900,
    "a100": 400,
    "l40s": 350,
    "l40": 300,
    "l4": 72,
    "a40": 300,
    "a10": 150,
    "a10g": 300,
    "a6000": 300,
    "v100": 300,
    "t4": 70,
    "rtx4090": 450,
    "rtx5090": 575,
    "mi300x": 750,
}
_IDLE_SHARE: Final = 0.1  # of the power limit, while nothing runs
_COOL_CELSIUS, _HOT_CELSIUS = 30.0, 72.0
_WARM_UP_SECONDS: Final = 60.0  # in which a GPU goes most of the way to its heat
LEAST_SECONDS: Final = 0.1  # between two readings: what is less says nothing
OWN_MEMORY_BYTES: Final = 512 * 1024**2  # the driver's
_MOST_MHZ, _LEAST_MHZ, _MEMORY_MHZ = 1980, 345, 2619


def chance(*seed: object) -> float:
    """Return a pseudo-random value from 0 to 1 that is the same for the same seed on
    every machine."""
    return zlib.crc32("/".join(map(str, seed)).encode()) / 2**32


class ProcessWork(NamedTuple):
    """Work of an attempt's processes on this node: CPU time since their start and
    current memory."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0


NO_WORK: Final[Mapping[AttemptKey, ProcessWork]] = {}


@dataclass(slots=True)
class Pretend:
    """Simulated readings of the GPUs of a pretend machine. Each call of `read` gets a
    later wall-clock time."""

    gpus: tuple[Gpu, ...]
    _joules: dict[int, float] = field(default_factory=dict)
    _cpu_seconds: dict[AttemptKey, float] = field(default_factory=dict)
    _read_at: float = 0.0

    def read(
        self,
        held: Sequence[HeldAttempt],
        pids: Mapping[AttemptKey, tuple[int, ...]],
        at: float,
        faults: Mapping[str, Mapping[str, Any]],
        work: Mapping[AttemptKey, ProcessWork] = NO_WORK,
    ) -> tuple[GpuSample, ...]:
        """Return a sample of each GPU.

        Args:
            pids: processes of each attempt.
            faults: sample fields to override, by index of the GPU.
            work: CPU time and memory that the processes of each attempt have used.

        Raises: ValueError for a fault that is not a valid field.
        """
        seconds = max(0.0, at - self._read_at) if self._read_at else 0.0
        held = [self._derive_gpu_use(held_attempt, work, at) for held_attempt in held]
        self._cpu_seconds = {
            key: process_work.cpu_seconds for key, process_work in work.items()
        }
        self._read_at = at
        readings = []
        for gpu in self.gpus:
            sample = sample_of(
                gpu,
                [
                    held_attempt
                    for held_attempt in held
                    if gpu.index in held_attempt.gpus
                ],
                pids,
                at,
            )
            joules = self._joules.get(gpu.index, 0.0) + seconds * (
                sample.power_watts or 0.0
            )
            self._joules[gpu.index] = joules
            sample = replace(sample, energy_joules=joules)
            readings.append(_apply_fault(sample, faults.get(str(gpu.index), {})))
        return tuple(readings)

    def _derive_gpu_use(
        self, held: HeldAttempt, work: Mapping[AttemptKey, ProcessWork], at: float
    ) -> HeldAttempt:
        """Return the attempt with `use` and `memory` set to the shares of time and
        memory that its processes have used of each of its GPUs."""
        key = (held.job, held.attempt)
        known_work, gpu_count = work.get(key, ProcessWork()), max(1, len(held.gpus))
        interval_start = (
            self._read_at
            if key in self._cpu_seconds
            else max(held.since, self._read_at)
        )
        cpu_seconds = known_work.cpu_seconds - self._cpu_seconds.get(key, 0.0)
        use = (
            max(0.0, cpu_seconds) / max(at - interval_start, LEAST_SECONDS) / gpu_count
        )
        room = sum(gpu.memory_bytes for gpu in self.gpus if gpu.index in held.gpus)
        memory = known_work.memory_bytes / room if room else 0.0
        return msgspec.structs.replace(
            held,
            use=min(1.0, use) if held.use is None else held.use,
            memory=min(1.0, memory) if held.memory is None else held.memory,
        )


def sample_of(
    gpu: Gpu,
    held: Sequence[HeldAttempt],
    pids: Mapping[AttemptKey, tuple[int, ...]],
    at: float,
) -> GpuSample:
    """Return a sample of one GPU at the time `at`, without values such as energy that
    accumulate over time."""
    used_share = min(1.0, sum(held_attempt.use or 0.0 for held_attempt in held))
    busy_since = min((held_attempt.since for held_attempt in held), default=at)
    warm = 1 - math.exp(-max(0.0, at - busy_since) / _WARM_UP_SECONDS)
    limit = float(_LIMIT_WATTS.get(gpu.type, 300))
    room = max(0, gpu.memory_bytes - OWN_MEMORY_BYTES)
    memory = {
        (held_attempt.job, held_attempt.attempt): int(
            room * min(1.0, (held_attempt.memory or 0.0) / len(held))
        )
        for held_attempt in held
    }
    return GpuSample(
        index=gpu.index,
        uuid=gpu.uuid,
        type=gpu.type,
        pretend=True,
        utilisation=round(used_share, 4),
        memory_utilisation=round(used_share * 0.6, 4),
        graphics_active=round(used_share, 4),
        tensor_active=round(used_share * 0.5, 4),
        memory_used_bytes=min(
            gpu.memory_bytes, OWN_MEMORY_BYTES + sum(memory.values())
        ),
        memory_total_bytes=gpu.memory_bytes,
        power_watts=round(limit * (_IDLE_SHARE + (0.95 - _IDLE_SHARE) * used_share), 1),
        power_limit_watts=limit,
        temperature_celsius=round(
            _COOL_CELSIUS + (_HOT_CELSIUS - _COOL_CELSIUS) * used_share * warm, 1
        ),
        memory_temperature_celsius=round(_COOL_CELSIUS + 50 * used_share * warm, 1),
        sm_clock_mhz=_MOST_MHZ - int(150 * used_share) if held else _LEAST_MHZ,
        memory_clock_mhz=_MEMORY_MHZ,
        ecc_volatile_corrected=0,
        ecc_volatile_uncorrected=0,
        ecc_aggregate_corrected=0,
        ecc_aggregate_uncorrected=0,
        remapped_corrected=0,
        remapped_uncorrected=0,
        remap_pending=False,
        remap_failed=False,
        pcie_generation=5,
        pcie_width=16,
        pcie_generation_most=5,
        pcie_width_most=16,
        pcie_replays=0,
        processes=tuple(
            GpuProcess(pid=pid, memory_bytes=share, job=key[0], attempt=key[1])
            for key, share in memory.items()
            for pid in pids.get(key, ())[:1]
        ),
    )


def _apply_fault(sample: GpuSample, fault: Mapping[str, Any]) -> GpuSample:
    """Return the sample with the fields of the fault. Raises: ValueError."""
    if not fault:
        return sample
    return msgspec.convert({**msgspec.to_builtins(sample), **fault}, GpuSample)
