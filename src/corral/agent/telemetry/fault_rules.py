"""Rules that derive signals from two sensor samples and from driver messages. Pure
functions.

A counter that has risen is reported at once. A lasting condition (a link that is down)
is reported when it has lasted for its limit. The report repeats every few minutes while
the condition lasts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from corral.agent.telemetry.gpu_rules import gpu_holding, gpu_risen
from corral.agent.telemetry.kernel_confirmation import confirmed_by
from corral.agent.telemetry.machine_rules import machine_holding, port_risen, silences
from corral.agent.telemetry.messages import Happening
from corral.agent.telemetry.rule_state import (
    NO_GPU,
    RulePast,
    StandingCondition,
    signal,
)
from corral.agent.telemetry.thresholds import LIMITS, SensorThresholds
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.telemetry import GPUS, SENSORS, GpuSample, NodeSample

# lines of the kernel's log that wait for the driver; the oldest go
MOST_WAITING: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleMemory:
    """Memory of the rules. Times are by the node's wall clock.

    `since`: the start of each condition; `told`: the time of its last report. `words`:
    the last arrival of each driver message. `log_read_to`: the position in the kernel
    log. `waiting`: signals from that log which the GPU driver has not confirmed, by
    their keys.
    """

    past: RulePast = field(default_factory=RulePast)
    since: Mapping[str, float] = field(default_factory=dict)
    told: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, float] = field(default_factory=dict)
    log_read_to: int | None = None
    waiting: Mapping[str, Signal] = field(default_factory=dict)


def notice(
    memory: RuleMemory, sample: NodeSample, limits: SensorThresholds = LIMITS
) -> tuple[RuleMemory, tuple[Signal, ...]]:
    """Apply the rules to a new sample. Return the memory and the signals, whose numbers
    are still 0."""
    signals = list(_counter_signals(memory.past, sample, limits))
    start_times: dict[str, float] = {}
    last_notice: dict[str, float] = {}
    holding = list(_standing_conditions(memory.past, sample, limits))
    for standing_condition in holding:
        start_times[standing_condition.key] = memory.since.get(
            standing_condition.key, sample.at
        )
        last_told_at = memory.told.get(standing_condition.key)
        if last_told_at is not None and sample.at - last_told_at < limits.again_seconds:
            last_notice[standing_condition.key] = last_told_at
        elif (
            sample.at - start_times[standing_condition.key]
            >= standing_condition.lasting_seconds
        ):
            signals.append(replace(standing_condition.signal, lasting=True))
            last_notice[standing_condition.key] = sample.at
    for key in memory.since:
        if key not in start_times and _is_unknown(
            key, sample
        ):  # neither holds nor is over
            start_times[key] = memory.since[key]
            last_notice |= {key: memory.told[key]} if key in memory.told else {}
    current_signals = [*signals, *(condition.signal for condition in holding)]
    confirmed = confirmed_by(memory.waiting, sample, current_signals)
    waiting_signals = {
        key: signal
        for key, signal in memory.waiting.items()
        if key not in confirmed and abs(sample.at - signal.at) < limits.confirm_seconds
    }
    past = memory.past.after(sample)
    memory = replace(
        memory, past=past, since=start_times, told=last_notice, waiting=waiting_signals
    )
    return memory, (*signals, *confirmed.values())


def hear(
    memory: RuleMemory, happening: Happening, limits: SensorThresholds = LIMITS
) -> tuple[RuleMemory, tuple[Signal, ...]]:
    """Process a report of a driver or of the kernel; return the new memory and the
    signals that result.

    The same report from another source is not repeated, unless it confirms a report
    that came from the kernel's log alone.
    """
    key = f"{happening.kind}/{happening.code}/{happening.gpu}/{happening.device}"
    key += f"/{happening.recovery}"
    last_heard_at, waiting_signals = memory.words.get(key), dict(memory.waiting)
    if happening.confirmed and (unsure := waiting_signals.pop(key, None)) is not None:
        return replace(memory, waiting=waiting_signals), (
            replace(unsure, confirmed=True),
        )
    if (
        last_heard_at is not None
        and abs(happening.at - last_heard_at) < limits.twice_seconds
    ):
        return memory, ()
    recent = {
        report_key: reported_at
        for report_key, reported_at in memory.words.items()
        if abs(happening.at - reported_at) < limits.twice_seconds
    }
    fault_signal = signal(
        happening.at,
        happening.kind,
        happening.text,
        code=happening.code,
        gpu=happening.gpu,
        device=happening.device,
        recovery=happening.recovery,
        confirmed=happening.confirmed,
    )
    if not happening.confirmed:
        waiting_signals = dict(
            list({**waiting_signals, key: fault_signal}.items())[-MOST_WAITING:]
        )
    report_times = {**recent, key: happening.at}
    return replace(memory, words=report_times, waiting=waiting_signals), (fault_signal,)


def _counter_signals(
    past: RulePast, sample: NodeSample, limits: SensorThresholds
) -> Iterator[Signal]:
    previous_sample = past.sample
    if previous_sample is None or sample.at <= previous_sample.at:
        return
    seconds = sample.at - previous_sample.at
    for gpu in sample.gpus:
        previous_gpu = _gpu_of(previous_sample.gpus, gpu)
        if previous_gpu is not None and not gpu.silent:
            yield from gpu_risen(previous_gpu, gpu, sample.at, seconds, limits)
    ports = {port.name: port for port in previous_sample.ports}
    for port in sample.ports:
        if port.name in ports:
            yield from port_risen(ports[port.name], port, sample.at, seconds, limits)


def _standing_conditions(
    past: RulePast, sample: NodeSample, limits: SensorThresholds
) -> Iterator[StandingCondition]:
    # otherwise they were not read
    for gpu in sample.gpus if SENSORS not in sample.silent else ():
        yield from gpu_holding(past, gpu, sample.at, limits)
    present_uuids = {gpu.uuid for gpu in sample.gpus}
    if not NO_GPU & set(sample.silent):
        for uuid, index in past.gpus.items():
            if uuid not in present_uuids:
                yield _lost_gpu_condition(uuid, index, sample.at)
    yield from machine_holding(past, sample, limits)
    yield from silences(sample)


def _lost_gpu_condition(uuid: str, index: int, at: float) -> StandingCondition:
    text = f"GPU {index} ({uuid}) has disappeared from the node"
    return StandingCondition(
        key=f"gpu/{uuid}/lost", signal=signal(at, SignalKind.GPU_LOST, text, gpu=index)
    )


def _gpu_of(gpus: Sequence[GpuSample], like: GpuSample) -> GpuSample | None:
    return next(
        (
            gpu_sample
            for gpu_sample in gpus
            if gpu_sample.uuid == like.uuid and not gpu_sample.silent
        ),
        None,
    )


def _is_unknown(key: str, sample: NodeSample) -> bool:
    """Return whether the state of the condition `key` is unknown, because the device
    that it concerns does not respond."""
    if SENSORS in sample.silent:
        return not key.endswith("/silent")
    silent = {f"gpu/{gpu.uuid}/" for gpu in sample.gpus if gpu.silent}
    silent |= {"gpu/" if source == GPUS else f"{source}/" for source in sample.silent}
    silent |= {f"disk/{disk.path}/" for disk in sample.disks if disk.silent}
    return any(key.startswith(start) for start in silent) and not key.endswith(
        "/silent"
    )
