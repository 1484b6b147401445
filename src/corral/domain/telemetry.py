"""Sensor values of a node at one moment. None means that a value is not reported, or
that there is no such sensor.

Shares are from 0 to 1. Counters only rise until the machine or the driver restarts.
"""

from dataclasses import dataclass
from typing import Final

from corral.domain.ids import AttemptNumber, JobId

# Entries of `NodeSample.silent` in addition to paths of disks: the GPUs' driver, the
# ports, the whole reader.
GPUS: Final = "GPUs"
PORTS: Final = "ports"
SENSORS: Final = "sensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A program that uses a GPU. `job` is None if Corral has not started it."""

    pid: int
    memory_bytes: int = 0
    job: JobId | None = None
    attempt: AttemptNumber | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """One link of a GPU to another GPU or to a switch."""

    link: int
    up: bool
    crc_errors: int = 0
    replays: int = 0
    recoveries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """Sample of one GPU at one moment. `index` is Corral's index, as in
    `domain.resources.Gpu`.

    `throttle` is why the clock rate is below the requested one, in NVML's terms
    (`sw_power_cap`, `hw_thermal_slowdown`, ...). `silent`: the driver did not answer in
    time, so nothing else is known.
    Source: NVML API reference, nvmlDeviceGet*; AMD SMI has the same values where
    available.
    """

    index: int
    uuid: str
    type: str = ""
    pretend: bool = False
    silent: bool = False
    lost: bool = False  # fallen off the bus: the driver says so
    utilisation: float | None = None  # share of the time in which a kernel ran
    memory_utilisation: float | None = None  # share in which memory was read or written
    graphics_active: float | None = None  # share of cycles in which the engine was busy
    tensor_active: float | None = None  # share of cycles in which tensor cores worked
    encoder_utilisation: float | None = None  # of video
    decoder_utilisation: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules: float | None = None  # since the driver was loaded
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle: tuple[str, ...] = ()
    ecc_volatile_corrected: int | None = None
    ecc_volatile_uncorrected: int | None = None
    ecc_aggregate_corrected: int | None = None
    ecc_aggregate_uncorrected: int | None = None
    remapped_corrected: int | None = None  # rows
    remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    # the driver names an action that would bring it back
    needs_recovery: bool | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_generation_most: int | None = None
    pcie_width_most: int | None = None
    pcie_replays: int | None = None
    pcie_sent_bytes_per_second: float | None = None
    pcie_received_bytes_per_second: float | None = None
    # sent and received by all links, without their overhead
    nvlink_bytes: int | None = None
    nvlink_sent_bytes_per_second: float | None = None
    nvlink_received_bytes_per_second: float | None = None
    nvlinks: tuple[NvLink, ...] = ()
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSample:
    """Sample of a network port. `kind` is ethernet, infiniband or roce. `downs` is how
    often its link went down."""

    name: str
    kind: str
    up: bool
    bits_per_second: float | None = None
    received_bytes: int = 0
    sent_bytes: int = 0
    errors: int = 0
    downs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSample:
    """Sample of a file system that Corral or its jobs write to. `silent`: the file
    system did not answer in time."""

    path: str
    total_bytes: int = 0
    free_bytes: int = 0
    silent: bool = False
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSample:
    """Sample of a whole node. `at` is the node's wall clock; `seconds` is the time over
    which the shares are averaged.

    Pressure is the share of the last 10 s in which some task waited (Linux PSI, `some
    avg10`). `clock_offset_seconds` is the node's clock minus the head's, as measured by
    the head.
    """

    at: float
    seconds: float = 10.0
    cpu_utilisation: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    pressure_cpu: float | None = None
    pressure_memory: float | None = None
    pressure_io: float | None = None
    clock_offset_seconds: float | None = None
    gpus: tuple[GpuSample, ...] = ()
    ports: tuple[PortSample, ...] = ()
    disks: tuple[DiskSample, ...] = ()
    silent: tuple[str, ...] = ()  # what did not answer: "GPUs", a path
