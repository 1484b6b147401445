"""AMD's GPUs as the kernel's drivers amdgpu and amdkfd show them in sysfs. A read may
hang.

Source: Linux, Documentation/gpu/amdgpu (thermal, ras, driver-misc),
amdkfd/kfd_topology.c and kfd_process.c.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.agent.sysfs import number_in, text_in
from corral.agent.telemetry.amd_smi import AmdSmi
from corral.domain.gpu_types import short_type
from corral.domain.resources import Gpu
from corral.domain.telemetry import GpuProcess, GpuSample

KFD: Final = "sys/class/kfd/kfd"
# GT/s
_GENERATIONS: Final = ((2.5, 1), (5.0, 2), (8.0, 3), (16.0, 4), (32.0, 5), (64.0, 6))
_ECC: Final = (
    "umc_err_count",
    "gfx_err_count",
    "sdma_err_count",
    "xgmi_wafl_err_count",
)


@dataclass(frozen=True, slots=True)
class Card:
    """One AMD GPU: the number that the kernel driver amdkfd gives it, and its device
    folder below sys/class/drm."""

    kfd: str
    device: Path


def cards(root: Path) -> list[Card]:
    """Return the GPUs in the order of ROCm's indices."""
    nodes = (
        node
        for node in (root / KFD / "topology/nodes").glob("*")
        if node.name.isdecimal()
    )
    card_list = []
    for node in sorted(nodes, key=lambda node: int(node.name)):
        minor = _properties(node / "properties").get("drm_render_minor", 0)
        if minor:
            device = root / f"sys/class/drm/renderD{minor}/device"
            card_list.append(Card(text_in(node / "gpu_id"), device))
    return card_list


def read(root: Path, gpus: tuple[Gpu, ...], smi: AmdSmi) -> tuple[GpuSample, ...]:
    """Return a sample of each GPU. A GPU that the kernel no longer lists is marked as
    lost."""
    card_list = cards(root)
    return tuple(
        _sample_gpu(root, gpu, card_list[gpu.index], smi)
        if gpu.index < len(card_list) and card_list[gpu.index].device.exists()
        else GpuSample(index=gpu.index, uuid=gpu.uuid, type=gpu.type, lost=True)
        for gpu in gpus
    )


def _sample_gpu(root: Path, gpu: Gpu, card: Card, smi: AmdSmi) -> GpuSample:
    device_dir = card.device
    sensors = next(iter(sorted(device_dir.glob("hwmon/hwmon*"))), device_dir / "hwmon")
    corrected, uncorrected = _read_ecc_counts(device_dir / "ras")
    heat = _read_temperatures(sensors)
    power = number_in(sensors / "power1_average")
    throttle, joules = smi.read(device_dir.resolve().name)
    return GpuSample(
        index=gpu.index,
        uuid=gpu.uuid,
        type=gpu.type or short_type(text_in(device_dir / "product_name")),
        utilisation=_read_fraction(device_dir / "gpu_busy_percent"),
        memory_utilisation=_read_fraction(device_dir / "mem_busy_percent"),
        memory_used_bytes=number_in(device_dir / "mem_info_vram_used"),
        memory_total_bytes=number_in(device_dir / "mem_info_vram_total"),
        power_watts=_scaled_reading(
            number_in(sensors / "power1_input") if power is None else power, 1e6
        ),
        power_limit_watts=_scaled_reading(number_in(sensors / "power1_cap"), 1e6),
        energy_joules=joules,
        throttle=throttle,
        temperature_celsius=heat.get("junction", heat.get("edge")),
        memory_temperature_celsius=heat.get("mem"),
        sm_clock_mhz=_read_clock_mhz(sensors / "freq1_input"),
        memory_clock_mhz=_read_clock_mhz(sensors / "freq2_input"),
        ecc_volatile_corrected=corrected,
        ecc_volatile_uncorrected=uncorrected,
        pcie_generation=_generation(device_dir / "current_link_speed"),
        pcie_width=number_in(device_dir / "current_link_width"),
        pcie_generation_most=_generation(device_dir / "max_link_speed"),
        pcie_width_most=number_in(device_dir / "max_link_width"),
        pcie_replays=number_in(device_dir / "pcie_replay_count"),
        processes=tuple(_processes(root / KFD / "proc", card.kfd)),
    )


def _processes(folder: Path, kfd: str) -> Iterator[GpuProcess]:
    with suppress(OSError):
        for process in sorted(folder.iterdir()):
            used_bytes = number_in(process / f"vram_{kfd}")
            if used_bytes:
                yield GpuProcess(pid=int(process.name), memory_bytes=used_bytes)


def _read_ecc_counts(folder: Path) -> tuple[int | None, int | None]:
    """Return the counts of corrected and uncorrected memory errors, summed over the
    GPU's parts; None for a count that the GPU does not have."""
    error_counts: dict[str, int] = {}
    for name in _ECC:
        for line in text_in(folder / name).splitlines():
            kind, _, count = line.partition(":")
            with suppress(ValueError):
                error_counts[kind] = error_counts.get(kind, 0) + int(count)
    return error_counts.get("ce"), error_counts.get("ue")


def _read_temperatures(sensors: Path) -> dict[str, float]:
    """Return temperatures in degrees Celsius, by the driver's name of each sensor:
    edge, junction, mem."""
    temperatures = {}
    for label in sensors.glob("temp*_label"):
        degrees = number_in(sensors / label.name.replace("_label", "_input"))
        if degrees is not None:
            temperatures[text_in(label)] = degrees / 1000
    return temperatures


def _generation(file: Path) -> int | None:
    """Parse the generation of "32.0 GT/s PCIe"."""
    with suppress(ValueError, IndexError):
        pace = float(text_in(file).split()[0])
        return next(
            (generation for max_pace, generation in _GENERATIONS if pace <= max_pace),
            None,
        )
    return None


def _read_fraction(file: Path) -> float | None:
    return _scaled_reading(number_in(file), 100)


def _read_clock_mhz(file: Path) -> int | None:
    hertz = number_in(file)
    return None if hertz is None else hertz // 1_000_000


def _scaled_reading(value: int | None, by: float) -> float | None:
    return None if value is None else value / by


def _properties(file: Path) -> dict[str, int]:
    split_lines = (line.split() for line in text_in(file).splitlines())
    return {
        pair[0]: int(pair[1])
        for pair in split_lines
        if len(pair) == 2 and pair[1].isdecimal()
    }
