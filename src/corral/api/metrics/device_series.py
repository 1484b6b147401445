"""Metrics of GPUs and nodes: the name, type and help text of each, and how its value is
read from a sample.

Names and units are those of NVIDIA's DCGM exporter, so that existing dashboards
continue to work. All metrics of the exporter's default list exist, except
DCGM_FI_DEV_VGPU_LICENSE_STATUS.

Source: NVIDIA dcgm-exporter, etc/default-counters.csv; names of fields: DCGM API,
dcgm_fields.h.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Final

from corral.domain.telemetry import GpuSample, NodeSample, PortSample

MEBIBYTE: Final = 2**20
XIDS: Final = "DCGM_FI_DEV_XID_ERRORS"
Value = int | float | bool | None


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """A metric of GPUs, with its name, help text and function that reads the value from
    a sample. `kind` is gauge or counter."""

    name: str
    kind: str
    help: str
    of: Callable[[GpuSample], Value]


@dataclass(frozen=True, slots=True)
class NodeSeries:
    """A metric of nodes. `of` returns the metric's values from a sample, each with its
    additional labels."""

    name: str
    help: str
    of: Callable[[NodeSample], Iterable[tuple[str, Value]]]


def _percent_of_share(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)


def _mebibytes(size: int | None) -> int | None:
    return None if size is None else size // MEBIBYTE


def _free_memory_mib(gpu: GpuSample) -> int | None:
    if gpu.memory_total_bytes is None or gpu.memory_used_bytes is None:
        return None
    return (gpu.memory_total_bytes - gpu.memory_used_bytes) // MEBIBYTE


def _sum_link_counts(counts: list[int]) -> int | None:
    return sum(counts) if counts else None


def _to_milliunits(value: float | None) -> int | None:
    return None if value is None or not isfinite(value * 1000) else round(value * 1000)


def _kilobytes(rate: float | None) -> float | None:
    return None if rate is None else round(rate / 1000, 1)


def _engine_active(gpu: GpuSample) -> float | None:
    """Return the share of time in which the graphics engine was active. If the GPU has
    no performance monitoring, the driver's utilisation is used instead."""
    return gpu.utilisation if gpu.graphics_active is None else gpu.graphics_active


GPUS: Final = (
    MetricSeries(
        "DCGM_FI_DEV_SM_CLOCK",
        "gauge",
        "SM clock frequency (in MHz).",
        lambda gpu: gpu.sm_clock_mhz,
    ),
    MetricSeries(
        "DCGM_FI_DEV_MEM_CLOCK",
        "gauge",
        "Memory clock frequency (in MHz).",
        lambda gpu: gpu.memory_clock_mhz,
    ),
    MetricSeries(
        "DCGM_FI_DEV_MEMORY_TEMP",
        "gauge",
        "Memory temperature (in C).",
        lambda gpu: gpu.memory_temperature_celsius,
    ),
    MetricSeries(
        "DCGM_FI_DEV_GPU_TEMP",
        "gauge",
        "GPU temperature (in C).",
        lambda gpu: gpu.temperature_celsius,
    ),
    MetricSeries(
        "DCGM_FI_DEV_POWER_USAGE",
        "gauge",
        "Power draw (in W).",
        lambda gpu: gpu.power_watts,
    ),
    MetricSeries(
        "DCGM_FI_DEV_POWER_MGMT_LIMIT",
        "gauge",
        "Power limit (in W).",
        lambda gpu: gpu.power_limit_watts,
    ),
    MetricSeries(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Total energy consumption since the driver was loaded (in mJ).",
        lambda gpu: _to_milliunits(gpu.energy_joules),
    ),
    MetricSeries(
        "DCGM_FI_DEV_PCIE_TX_THROUGHPUT",
        "gauge",
        "PCIe sent (in KB/s).",
        lambda gpu: _kilobytes(gpu.pcie_sent_bytes_per_second),
    ),
    MetricSeries(
        "DCGM_FI_DEV_PCIE_RX_THROUGHPUT",
        "gauge",
        "PCIe received (in KB/s).",
        lambda gpu: _kilobytes(gpu.pcie_received_bytes_per_second),
    ),
    MetricSeries(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "gauge",
        "Ratio of time the graphics engine is active.",
        _engine_active,
    ),
    MetricSeries(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "gauge",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        lambda gpu: gpu.tensor_active,
    ),
    MetricSeries(
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        "gauge",
        "PCIe sent (in bytes a second).",
        lambda gpu: gpu.pcie_sent_bytes_per_second,
    ),
    MetricSeries(
        "DCGM_FI_PROF_PCIE_RX_BYTES",
        "gauge",
        "PCIe received (in bytes a second).",
        lambda gpu: gpu.pcie_received_bytes_per_second,
    ),
    MetricSeries(
        "DCGM_FI_PROF_NVLINK_TX_BYTES",
        "gauge",
        "NVLinks sent (in bytes a second).",
        lambda gpu: gpu.nvlink_sent_bytes_per_second,
    ),
    MetricSeries(
        "DCGM_FI_PROF_NVLINK_RX_BYTES",
        "gauge",
        "NVLinks received (in bytes a second).",
        lambda gpu: gpu.nvlink_received_bytes_per_second,
    ),
    MetricSeries(
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "counter",
        "Sent and received by all NVLinks since the driver was loaded (in KiB).",
        lambda gpu: None if gpu.nvlink_bytes is None else gpu.nvlink_bytes // 1024,
    ),
    MetricSeries(
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "counter",
        "Total number of PCIe retries.",
        lambda gpu: gpu.pcie_replays,
    ),
    MetricSeries(
        "DCGM_FI_DEV_PCIE_LINK_GEN",
        "gauge",
        "PCIe generation in use.",
        lambda gpu: gpu.pcie_generation,
    ),
    MetricSeries(
        "DCGM_FI_DEV_PCIE_LINK_WIDTH",
        "gauge",
        "PCIe lanes in use.",
        lambda gpu: gpu.pcie_width,
    ),
    MetricSeries(
        "DCGM_FI_DEV_GPU_UTIL",
        "gauge",
        "GPU utilization (in %).",
        lambda gpu: _percent_of_share(gpu.utilisation),
    ),
    MetricSeries(
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "gauge",
        "Memory utilization (in %).",
        lambda gpu: _percent_of_share(gpu.memory_utilisation),
    ),
    MetricSeries(
        "DCGM_FI_DEV_ENC_UTIL",
        "gauge",
        "Encoder utilization (in %).",
        lambda gpu: _percent_of_share(gpu.encoder_utilisation),
    ),
    MetricSeries(
        "DCGM_FI_DEV_DEC_UTIL",
        "gauge",
        "Decoder utilization (in %).",
        lambda gpu: _percent_of_share(gpu.decoder_utilisation),
    ),
    MetricSeries(
        "DCGM_FI_DEV_FB_FREE",
        "gauge",
        "Framebuffer memory free (in MiB).",
        _free_memory_mib,
    ),
    MetricSeries(
        "DCGM_FI_DEV_FB_USED",
        "gauge",
        "Framebuffer memory used (in MiB).",
        lambda gpu: _mebibytes(gpu.memory_used_bytes),
    ),
    MetricSeries(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "counter",
        "Single-bit ECC errors since the driver was loaded.",
        lambda gpu: gpu.ecc_volatile_corrected,
    ),
    MetricSeries(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "counter",
        "Double-bit ECC errors since the driver was loaded.",
        lambda gpu: gpu.ecc_volatile_uncorrected,
    ),
    MetricSeries(
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
        "counter",
        "Single-bit ECC errors in the lifetime of the GPU.",
        lambda gpu: gpu.ecc_aggregate_corrected,
    ),
    MetricSeries(
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
        "counter",
        "Double-bit ECC errors in the lifetime of the GPU.",
        lambda gpu: gpu.ecc_aggregate_uncorrected,
    ),
    MetricSeries(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for uncorrectable errors.",
        lambda gpu: gpu.remapped_uncorrected,
    ),
    MetricSeries(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for correctable errors.",
        lambda gpu: gpu.remapped_corrected,
    ),
    MetricSeries(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        "gauge",
        "Whether remapping of rows has failed.",
        lambda gpu: gpu.remap_failed,
    ),
    MetricSeries(
        "DCGM_FI_DEV_ROW_REMAP_PENDING",
        "gauge",
        "Whether a remapping of rows is pending.",
        lambda gpu: gpu.remap_pending,
    ),
    MetricSeries(
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "counter",
        "Total number of NVLink flow-control CRC errors.",
        lambda gpu: _sum_link_counts([link.crc_errors for link in gpu.nvlinks]),
    ),
    MetricSeries(
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        "counter",
        "Total number of NVLink retries.",
        lambda gpu: _sum_link_counts([link.replays for link in gpu.nvlinks]),
    ),
    MetricSeries(
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        "counter",
        "Total number of NVLink recovery errors.",
        lambda gpu: _sum_link_counts([link.recoveries for link in gpu.nvlinks]),
    ),
    MetricSeries(
        "corral_gpu_lost",
        "gauge",
        "Whether the GPU has fallen off the bus.",
        lambda gpu: gpu.lost,
    ),
    MetricSeries(
        "corral_gpu_silent",
        "gauge",
        "Whether the driver did not answer in time about this GPU.",
        lambda gpu: gpu.silent,
    ),
)

NODES: Final = (
    NodeSeries(
        "corral_node_cpu_utilisation_ratio",
        "Share of the CPUs in use.",
        lambda node: [("", node.cpu_utilisation)],
    ),
    NodeSeries(
        "corral_node_memory_used_bytes",
        "Memory in use.",
        lambda node: [("", node.memory_used_bytes)],
    ),
    NodeSeries(
        "corral_node_memory_bytes",
        "Memory of the machine.",
        lambda node: [("", node.memory_total_bytes)],
    ),
    NodeSeries(
        "corral_node_pressure_ratio",
        "Share of 10 s in which some task waited (PSI).",
        lambda node: [
            (',resource="cpu"', node.pressure_cpu),
            (',resource="memory"', node.pressure_memory),
            (',resource="io"', node.pressure_io),
        ],
    ),
    NodeSeries(
        "corral_node_clock_offset_seconds",
        "The node's clock minus the head's clock.",
        lambda node: [("", node.clock_offset_seconds)],
    ),
    NodeSeries(
        "corral_node_disk_free_bytes",
        "Free bytes of a file system.",
        lambda node: [
            (f',path="{escaped(disk.path)}"', disk.free_bytes)
            for disk in node.disks
            if not disk.silent
        ],
    ),
    NodeSeries(
        "corral_node_disk_bytes",
        "Size of a file system.",
        lambda node: [
            (f',path="{escaped(disk.path)}"', disk.total_bytes)
            for disk in node.disks
            if not disk.silent
        ],
    ),
    NodeSeries(
        "corral_node_port_up",
        "Whether a network port has a link.",
        lambda node: [(_labels_of_port(port), port.up) for port in node.ports],
    ),
    NodeSeries(
        "corral_node_port_bits_per_second",
        "Speed of a network port.",
        lambda node: [
            (_labels_of_port(port), port.bits_per_second) for port in node.ports
        ],
    ),
)


def _labels_of_port(port: PortSample) -> str:
    return f',port="{escaped(port.name)}",kind="{escaped(port.kind)}"'


def escaped(text: str) -> str:
    """Return a label's value with special characters escaped. Unprintable characters
    become question marks.

    Source: OpenMetrics 1.0, section "Text format".
    """
    if not text.isprintable():
        text = "".join(
            character if character.isprintable() else "?" for character in text
        )
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def shown(value: float) -> str:
    """Return a number in the notation that both formats share.

    Source: OpenMetrics 1.0, section "Numbers": NaN, +Inf and -Inf are the names of
    values that are not finite.
    """
    if isinstance(value, bool):
        return str(int(value))
    if isfinite(value):
        return repr(value)
    return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
