"""NVIDIA's GPUs as NVML shows them. Any call in this module may hang: the reader calls
it for each GPU in a thread.

A value that a GPU or a driver does not report is None. Source: NVML API reference,
nvmlDeviceGet*.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pynvml  # type: ignore[import-untyped]

from corral.agent.nvml_gpus import driver_indices, text_of
from corral.agent.telemetry.gpm import EngineActivity
from corral.agent.telemetry.nvlink import NvLinks
from corral.agent.telemetry.nvml_call import NvmlCall
from corral.domain.gpu_types import short_type
from corral.domain.telemetry import GpuProcess, GpuSample

THROTTLE: Final = (
    ("sw_power_cap", pynvml.nvmlClocksThrottleReasonSwPowerCap),
    ("hw_slowdown", pynvml.nvmlClocksThrottleReasonHwSlowdown),
    ("sync_boost", pynvml.nvmlClocksThrottleReasonSyncBoost),
    ("sw_thermal_slowdown", pynvml.nvmlClocksThrottleReasonSwThermalSlowdown),
    ("hw_thermal_slowdown", pynvml.nvmlClocksThrottleReasonHwThermalSlowdown),
    ("hw_power_brake_slowdown", pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown),
)
ALL_LINKS: Final = 2**32 - 1  # of a field value that is kept for each link: their sum


@dataclass(slots=True)
class Traffic:
    """Rates in bytes per second of two byte counters (sent and received), from one
    reading to the next."""

    _last: tuple[float, int, int] | None = None

    def rates(
        self, sent: int | None, received: int | None
    ) -> tuple[float | None, float | None]:
        """Return the rates of both counters since the previous call. A rate is None at
        the first call or after a counter reset."""
        if sent is None or received is None:
            return None, None
        now = time.monotonic()
        previous_counts, self._last = self._last, (now, sent, received)
        if (
            previous_counts is None
            or now <= previous_counts[0]
            or sent < previous_counts[1]
            or received < previous_counts[2]
        ):
            return None, None
        seconds = now - previous_counts[0]
        return (sent - previous_counts[1]) / seconds, (
            received - previous_counts[2]
        ) / seconds


@dataclass(slots=True, kw_only=True)
class NvmlDevice:
    """One GPU. `index` is Corral's index; `bus` is the PCI address: (domain, bus,
    device)."""

    index: int
    handle: Any
    uuid: str
    type: str
    bus: tuple[int, int, int] | None = None
    asked: NvmlCall = field(init=False)
    _links: NvLinks = field(init=False)
    _engines: EngineActivity = field(init=False)
    _sampled_to: int = 0  # microseconds of the driver's clock
    _pcie: Traffic = field(default_factory=Traffic)
    _nvlink: Traffic = field(default_factory=Traffic)

    def __post_init__(self) -> None:
        self.asked = NvmlCall(self.handle)
        self._links = NvLinks(self.asked)
        self._engines = EngineActivity(self.handle)

    def read(self) -> GpuSample:
        """Read everything. Raises: GpuLost, DriverGone."""
        ask = self.asked.ask
        rates = ask("UtilizationRates")
        memory = self._memory()
        remapped = ask("RemappedRows") or (None, None, None, None)
        fields = self.asked.fields(
            pynvml.NVML_FI_DEV_MEMORY_TEMP,
            pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
            pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
            (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
            (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
            pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
        )
        pcie_sent_rate, received = self._over_pcie(fields[1], fields[2])
        links = tuple(_kibibytes(field_value) for field_value in fields[3:5])
        nvlink_sent_rate, nvlink_received_rate = self._nvlink.rates(*links)
        active = self._engines.read()
        return GpuSample(
            index=self.index,
            uuid=self.uuid,
            type=self.type,
            utilisation=self._utilisation(rates),
            memory_utilisation=None if rates is None else rates.memory / 100,
            graphics_active=active.graphics,
            tensor_active=active.tensor,
            encoder_utilisation=_engine_utilisation(ask("EncoderUtilization")),
            decoder_utilisation=_engine_utilisation(ask("DecoderUtilization")),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            power_watts=_thousandth(ask("PowerUsage")),
            power_limit_watts=_thousandth(ask("EnforcedPowerLimit")),
            energy_joules=_thousandth(ask("TotalEnergyConsumption")),
            temperature_celsius=ask("Temperature", pynvml.NVML_TEMPERATURE_GPU),
            memory_temperature_celsius=fields[0] or None,  # 0: it has no such sensor
            sm_clock_mhz=ask("ClockInfo", pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=ask("ClockInfo", pynvml.NVML_CLOCK_MEM),
            throttle=self._throttle_reasons(),
            ecc_volatile_corrected=self._ecc_error_count("CORRECTED", "VOLATILE"),
            ecc_volatile_uncorrected=self._ecc_error_count("UNCORRECTED", "VOLATILE"),
            ecc_aggregate_corrected=self._ecc_error_count("CORRECTED", "AGGREGATE"),
            ecc_aggregate_uncorrected=self._ecc_error_count("UNCORRECTED", "AGGREGATE"),
            remapped_corrected=remapped[0],
            remapped_uncorrected=remapped[1],
            remap_pending=None if remapped[2] is None else bool(remapped[2]),
            remap_failed=None if remapped[3] is None else bool(remapped[3]),
            needs_recovery=None if fields[5] is None else bool(fields[5]),
            pcie_generation=ask("CurrPcieLinkGeneration"),
            pcie_width=ask("CurrPcieLinkWidth"),
            pcie_generation_most=ask("MaxPcieLinkGeneration"),
            pcie_width_most=ask("MaxPcieLinkWidth"),
            pcie_replays=ask("PcieReplayCounter"),
            pcie_sent_bytes_per_second=pcie_sent_rate,
            pcie_received_bytes_per_second=received,
            nvlink_bytes=None if None in links else sum(link or 0 for link in links),
            nvlink_sent_bytes_per_second=nvlink_sent_rate,
            nvlink_received_bytes_per_second=nvlink_received_rate,
            nvlinks=self._links.read(),
            processes=tuple(self._processes()),
        )

    def _utilisation(self, rates: Any) -> float | None:
        """Return the mean utilisation since the previous reading, from the samples that
        the driver keeps. Without samples, return the driver's current value from
        `rates`."""
        samples = self.asked.ask(
            "Samples", pynvml.NVML_GPU_UTILIZATION_SAMPLES, self._sampled_to
        )
        if samples is not None and samples[1]:
            self._sampled_to = max(int(sample.timeStamp) for sample in samples[1])
            return float(
                sum(sample.sampleValue.uiVal for sample in samples[1])
                / len(samples[1])
                / 100
            )
        return None if rates is None else float(rates.gpu / 100)

    def _memory(self) -> Any:
        """Return the memory that programs use. The older call, which is used if the
        newer one has no answer, adds the driver's reserve: 616 MiB on an H200."""
        memory_info = self.asked.ask("MemoryInfo", pynvml.nvmlMemory_v2)
        return self.asked.ask("MemoryInfo") if memory_info is None else memory_info

    def _throttle_reasons(self) -> tuple[str, ...]:
        reasons = self.asked.ask("CurrentClocksEventReasons")
        if reasons is None:
            reasons = self.asked.ask("CurrentClocksThrottleReasons") or 0
        return tuple(name for name, bit in THROTTLE if reasons & bit)

    def _ecc_error_count(self, kind: str, counter: str) -> int | None:
        error_counts = self.asked.ask(
            "TotalEccErrors",
            getattr(pynvml, f"NVML_MEMORY_ERROR_TYPE_{kind}"),
            getattr(pynvml, f"NVML_{counter}_ECC"),
        )
        return None if error_counts is None else int(error_counts)

    def _over_pcie(
        self, sent: int | None, received: int | None
    ) -> tuple[float | None, float | None]:
        """Return the bytes per second sent and received over PCIe. Counters are used if
        the driver has them, because a measurement takes 20 ms for each direction."""
        if sent is None or received is None:
            kinds = (pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES)
            sent_rate, second = (
                self.asked.ask("PcieThroughput", kind) for kind in kinds
            )
            return _kilobytes(sent_rate), _kilobytes(second)
        return self._pcie.rates(sent, received)

    def _processes(self) -> Iterator[GpuProcess]:
        for process in self.asked.ask("ComputeRunningProcesses_v3") or ():
            yield GpuProcess(
                pid=int(process.pid), memory_bytes=int(process.usedGpuMemory or 0)
            )


def devices(
    chosen: tuple[int, ...] | None, numbers: tuple[int, ...] | None = None
) -> tuple[NvmlDevice, ...]:
    """Return the driver's GPUs whose index is in `chosen`. A GPU that cannot be
    identified, such as a lost one, is left out. `numbers` gives the GPUs other indices;
    a partitioned GPU is then left out, because its readings do not belong to the
    granted part.

    Raises: RuntimeError when there is a driver and it fails.
    """
    indices = driver_indices(None)
    handles = []
    for number, index in called(indices, chosen, numbers):
        with suppress(pynvml.NVMLError):
            device = _open_device(number, index)
            if numbers is None or not _is_cut(device.handle):
                handles.append(device)
    return tuple(handles)


def called(
    there: Sequence[int],
    chosen: tuple[int, ...] | None,
    numbers: tuple[int, ...] | None,
) -> list[tuple[int, int]]:
    """Return (Corral's index, driver index) of each chosen GPU in `there`; nothing if
    the mapping is unknown."""
    own_indices = there if chosen is None else chosen
    if numbers is None:
        return list(enumerate(index for index in own_indices if index in there))
    if len(own_indices) != len(numbers):
        return []
    return [
        (number, index)
        for number, index in zip(numbers, own_indices, strict=True)
        if index in there
    ]


def _open_device(place: int, index: int) -> NvmlDevice:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return NvmlDevice(
        index=place,
        handle=handle,
        uuid=text_of(pynvml.nvmlDeviceGetUUID(handle)),
        type=short_type(text_of(pynvml.nvmlDeviceGetName(handle))),
        bus=_pci_address(handle),
    )


def _is_cut(handle: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    except pynvml.NVMLError:
        return False  # it cannot be cut, or the driver is too old


def _pci_address(handle: Any) -> tuple[int, int, int] | None:
    try:
        pci_info = pynvml.nvmlDeviceGetPciInfo(handle)
    except pynvml.NVMLError:
        return None
    return int(pci_info.domain), int(pci_info.bus), int(pci_info.device)


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _kibibytes(value: int | None) -> int | None:
    return None if value is None else value * 1024


def _engine_utilisation(found: Any) -> float | None:
    """Convert the reading of a video engine to a share. The reading holds a percentage
    and the period that it covers."""
    return None if found is None else float(found[0] / 100)


def _kilobytes(value: int | None) -> float | None:
    return None if value is None else value * 1000.0
