"""Signal rules for one GPU. Pure functions."""

from collections.abc import Iterator
from typing import Final

from corral.agent.telemetry.rule_state import RulePast, StandingCondition, signal
from corral.agent.telemetry.thresholds import HOT, SensorThresholds
from corral.domain.node_signal import (
    CORRECTED,
    FAILED,
    PENDING,
    UNCORRECTED,
    Signal,
    SignalKind,
)
from corral.domain.telemetry import GpuSample, NvLink

_MINUTE_SECONDS: Final = 60.0


def gpu_risen(
    before: GpuSample,
    now: GpuSample,
    at: float,
    seconds: float,
    limits: SensorThresholds,
) -> Iterator[Signal]:
    """Yield a signal for each counter of the GPU that has risen between two samples."""
    gpu, name = now.index, f"GPU {now.index}"
    worse = max(
        rise(before.ecc_volatile_uncorrected, now.ecc_volatile_uncorrected),
        rise(before.ecc_aggregate_uncorrected, now.ecc_aggregate_uncorrected),
    )
    if worse:
        text = f"{name}: {worse} more uncorrected memory errors"
        yield signal(
            at, SignalKind.ECC, text, code=UNCORRECTED, gpu=gpu, value=float(worse)
        )
    corrected = rise(before.ecc_volatile_corrected, now.ecc_volatile_corrected)
    if corrected >= limits.ecc_corrected:
        text = f"{name}: {corrected} corrected memory errors in {seconds:.0f} s"
        yield signal(
            at,
            SignalKind.ECC,
            text,
            code=CORRECTED,
            gpu=gpu,
            value=float(corrected),
            limit=float(limits.ecc_corrected),
        )
    replays = rise(before.pcie_replays, now.pcie_replays) * _MINUTE_SECONDS / seconds
    if replays > limits.pcie_replays_per_minute:
        text = f"{name}: {replays:.0f} PCIe replays a minute"
        replay_limit = limits.pcie_replays_per_minute
        yield signal(
            at, SignalKind.PCIE, text, gpu=gpu, value=replays, limit=replay_limit
        )
    links = {link.link: link for link in before.nvlinks}
    for link in now.nvlinks:
        if link.link in links:
            yield from _link_risen(
                name, gpu, links[link.link], link, at, seconds, limits
            )


def _link_risen(
    name: str,
    gpu: int,
    before: NvLink,
    now: NvLink,
    at: float,
    seconds: float,
    limits: SensorThresholds,
) -> Iterator[Signal]:
    device = f"NVLink {now.link}"
    for counter_name, count in (
        ("replays", rise(before.replays, now.replays)),
        ("recoveries", rise(before.recoveries, now.recoveries)),
    ):
        if count:
            text = f"{name}, {device}: {count} more {counter_name}"
            yield signal(
                at, SignalKind.NVLINK, text, gpu=gpu, device=device, value=float(count)
            )
    rate = rise(before.crc_errors, now.crc_errors) / seconds
    if rate > limits.nvlink_crc_per_second:
        text = f"{name}, {device}: {rate:.0f} checksum errors a second"
        crc_limit = limits.nvlink_crc_per_second
        yield signal(
            at,
            SignalKind.NVLINK,
            text,
            gpu=gpu,
            device=device,
            value=rate,
            limit=crc_limit,
        )


def gpu_holding(
    past: RulePast, now: GpuSample, at: float, limits: SensorThresholds
) -> Iterator[StandingCondition]:
    """Yield the lasting conditions that hold now for a GPU."""
    gpu, name, key = now.index, f"GPU {now.index}", f"gpu/{now.uuid}"
    if now.silent:
        text = f"{name} ({now.uuid}): the driver does not answer"
        yield StandingCondition(
            key=f"{key}/silent", signal=signal(at, SignalKind.SILENT, text, gpu=gpu)
        )
        return
    if now.lost:
        text = f"{name} ({now.uuid}) is lost: it fell off the bus or needs a reset"
        yield StandingCondition(
            key=f"{key}/lost", signal=signal(at, SignalKind.GPU_LOST, text, gpu=gpu)
        )
        return
    if now.remap_failed:
        text = f"{name}: a memory row could not be remapped"
        yield StandingCondition(
            key=f"{key}/remap-failed",
            signal=signal(at, SignalKind.REMAP, text, code=FAILED, gpu=gpu),
        )
    if now.remap_pending:
        text = f"{name}: a memory row will be remapped at the next GPU reset"
        yield StandingCondition(
            key=f"{key}/remap-pending",
            signal=signal(at, SignalKind.REMAP, text, code=PENDING, gpu=gpu),
        )
    if hot := sorted(HOT & set(now.throttle)):
        text = f"{name} is slowed down: {', '.join(hot)}" + _temperature_text(now)
        yield StandingCondition(
            key=f"{key}/throttle",
            signal=signal(
                at, SignalKind.THROTTLE, text, gpu=gpu, value=now.temperature_celsius
            ),
            lasting_seconds=limits.throttle_seconds,
        )
    if narrow := _pcie_link_trouble(now, limits):
        yield StandingCondition(
            key=f"{key}/pcie",
            signal=signal(at, SignalKind.PCIE, f"{name}: {narrow}", gpu=gpu),
            lasting_seconds=limits.pcie_seconds,
        )
    yield from _links_down(past, now, at)


def _links_down(
    past: RulePast, now: GpuSample, at: float
) -> Iterator[StandingCondition]:
    """Yield the links that were up at some earlier time and are down now. A link that
    was never up has nothing at its other end."""
    for link in now.nvlinks:
        if not link.up and f"{now.uuid}/{link.link}" in past.links:
            device = f"NVLink {link.link}"
            text = f"GPU {now.index}: {device} is down"
            yield StandingCondition(
                key=f"gpu/{now.uuid}/nvlink-{link.link}",
                signal=signal(
                    at, SignalKind.NVLINK, text, gpu=now.index, device=device
                ),
            )


def _temperature_text(now: GpuSample) -> str:
    heat = now.temperature_celsius
    return "" if heat is None else f", at {heat:.0f} degrees Celsius"


def _pcie_link_trouble(now: GpuSample, limits: SensorThresholds) -> str:
    """Return in what respect (width or generation) a busy GPU's PCIe link is below its
    maximum; "" if it is at its maximum."""
    if now.utilisation is None or now.utilisation < limits.pcie_load:
        return ""
    width, max_width = now.pcie_width, now.pcie_width_most
    if width is not None and max_width is not None and width < max_width:
        return f"the PCIe link uses {width} of {max_width} lanes"
    pace, fastest = now.pcie_generation, now.pcie_generation_most
    if pace is not None and fastest is not None and pace < fastest:
        return f"the PCIe link runs at generation {pace} instead of {fastest}"
    return ""


def rise(before: int | None, now: int | None) -> int:
    """Return by how much a counter has risen; 0 if it has restarted or a value is
    unknown."""
    return 0 if before is None or now is None else max(0, now - before)
