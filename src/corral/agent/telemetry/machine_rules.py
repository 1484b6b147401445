"""Signal rules for the machine: ports, disks, the clock, and sensors that do not
respond. Pure functions."""

from collections.abc import Iterator
from typing import Final

from corral.agent.telemetry.gpu_rules import rise
from corral.agent.telemetry.rule_state import (
    NO_GPU,
    RulePast,
    StandingCondition,
    signal,
)
from corral.agent.telemetry.thresholds import SensorThresholds
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.telemetry import (
    GPUS,
    PORTS,
    SENSORS,
    DiskSample,
    NodeSample,
    PortSample,
)
from corral.domain.units import share_text

_NAMES: Final = {
    GPUS: "the GPU driver does",
    PORTS: "the network ports do",
    SENSORS: "the node's sensors do",
}


def port_risen(
    before: PortSample,
    now: PortSample,
    at: float,
    seconds: float,
    limits: SensorThresholds,
) -> Iterator[Signal]:
    """Yield a signal for each counter of the port that has risen between two samples. A
    link that fell and is up again gives a signal too."""
    falls = rise(before.downs, now.downs)
    if falls and before.up and now.up:
        text = f"port {now.name}: the link went down {times(falls)} and is up again"
        yield signal(
            at, SignalKind.PORT_DOWN, text, device=now.name, value=float(falls)
        )
    rate = rise(before.errors, now.errors) / seconds
    if rate > limits.port_errors_per_second:
        text = f"port {now.name}: {rate:.1f} errors a second"
        error_limit = limits.port_errors_per_second
        yield signal(
            at,
            SignalKind.PORT_ERRORS,
            text,
            device=now.name,
            value=rate,
            limit=error_limit,
        )


def machine_holding(
    past: RulePast, sample: NodeSample, limits: SensorThresholds
) -> Iterator[StandingCondition]:
    """Yield the lasting conditions of the machine that hold now."""
    for port in sample.ports:
        yield from _port_conditions(past, port, sample.at, limits)
    for disk in sample.disks:
        yield from _disk_conditions(past, disk, sample.at, limits)
    offset = sample.clock_offset_seconds
    if offset is not None and abs(offset) > limits.clock_seconds:
        side = "ahead of" if offset > 0 else "behind"
        text = f"the node's clock is {abs(offset):.1f} s {side} the head's clock"
        yield StandingCondition(
            key="clock",
            signal=signal(
                sample.at,
                SignalKind.CLOCK,
                text,
                value=offset,
                limit=limits.clock_seconds,
            ),
            lasting_seconds=limits.clock_lasting_seconds,
        )


def _port_conditions(
    past: RulePast, port: PortSample, at: float, limits: SensorThresholds
) -> Iterator[StandingCondition]:
    """Yield the port's lasting conditions, such as a link that is down. A port that was
    never up has no cable and yields none."""
    best_pace = past.ports.get(port.name)
    if best_pace is None:
        return
    if not port.up:
        yield StandingCondition(
            key=f"ports/{port.name}/down",
            signal=signal(
                at, SignalKind.PORT_DOWN, f"port {port.name} is down", device=port.name
            ),
        )
        return
    pace = port.bits_per_second
    if pace is not None and pace < best_pace:
        text = (
            f"port {port.name} runs at {pace / 1e9:g} Gbit/s, earlier at "
            f"{best_pace / 1e9:g} Gbit/s"
        )
        yield StandingCondition(
            key=f"ports/{port.name}/slow",
            signal=signal(
                at,
                SignalKind.PORT_SLOW,
                text,
                device=port.name,
                value=pace,
                limit=best_pace,
            ),
            lasting_seconds=limits.port_slow_seconds,
        )


def _disk_conditions(
    past: RulePast, disk: DiskSample, at: float, limits: SensorThresholds
) -> Iterator[StandingCondition]:
    if disk.read_only and disk.path in past.written:
        text = f"{disk.path} has become read-only"
        yield StandingCondition(
            key=f"disk/{disk.path}/read-only",
            signal=signal(at, SignalKind.DISK_ERRORS, text, device=disk.path),
        )
    used_share = 1 - disk.free_bytes / disk.total_bytes if disk.total_bytes else 0.0
    if used_share > limits.disk_used:
        text = f"the disk of {disk.path} is {share_text(used_share)} full"
        yield StandingCondition(
            key=f"disk/{disk.path}/full",
            signal=signal(
                at,
                SignalKind.DISK_FULL,
                text,
                device=disk.path,
                value=used_share,
                limit=limits.disk_used,
            ),
        )


def silences(sample: NodeSample) -> Iterator[StandingCondition]:
    """Yield a condition for each sensor that does not respond. A single GPU that does
    not respond has its own signal from the GPU rules."""
    has_silent_gpu = SENSORS not in sample.silent and any(
        gpu.silent for gpu in sample.gpus
    )
    for name in sample.silent:
        if has_silent_gpu and name in NO_GPU:
            continue
        text = f"{_NAMES.get(name, name + ' does')} not answer"
        yield StandingCondition(
            key=f"{name}/silent",
            signal=signal(sample.at, SignalKind.SILENT, text, device=name),
        )


def times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
