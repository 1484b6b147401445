"""What a node notices of itself, from one sample of its sensors to the next."""

from dataclasses import replace
from typing import Any

import pytest

from corral.agent.telemetry.fault_rules import RuleMemory, hear, notice
from corral.agent.telemetry.messages import Happening
from corral.agent.telemetry.thresholds import LIMITS
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.telemetry import (
    DiskSample,
    GpuSample,
    NodeSample,
    NvLink,
    PortSample,
)

SECONDS = 10.0
HEALTHY = GpuSample(
    index=3,
    uuid="GPU-3",
    utilisation=0.9,
    ecc_volatile_corrected=0,
    ecc_volatile_uncorrected=0,
    ecc_aggregate_uncorrected=5,
    remap_pending=False,
    remap_failed=False,
    pcie_generation=5,
    pcie_width=16,
    pcie_generation_most=5,
    pcie_width_most=16,
    pcie_replays=0,
    nvlinks=(NvLink(link=0, up=True), NvLink(link=1, up=False)),
)
PORT = PortSample(name="mlx5_0/1", kind="infiniband", up=True, bits_per_second=400e9)
DISK = DiskSample(path="/data", total_bytes=1000, free_bytes=500)
NODE = NodeSample(at=1000.0, gpus=(HEALTHY,), ports=(PORT,), disks=(DISK,))

Kinds = list[tuple[SignalKind, int | None]]


def later(node: NodeSample, seconds: float = SECONDS, **more: Any) -> NodeSample:
    return replace(node, at=node.at + seconds, **more)


def gpu(**more: Any) -> dict[str, Any]:
    return {"gpus": (replace(HEALTHY, **more),)}


def port(**more: Any) -> dict[str, Any]:
    return {"ports": (replace(PORT, **more),)}


def noticed(*samples: NodeSample) -> list[tuple[Signal, ...]]:
    """What each of the samples made the node tell."""
    memory, told = RuleMemory(), []
    for sample in samples:
        memory, signals = notice(memory, sample)
        told.append(signals)
    return told


def at_once(change: dict[str, Any]) -> Kinds:
    """What is told of a change, that was not told before it."""
    before, after = noticed(NODE, later(NODE, **change))
    assert before == ()
    return [(one.kind, one.code) for one in after]


def test_of_a_healthy_node_nothing_is_told() -> None:
    samples = [later(NODE, SECONDS * turn) for turn in range(50)]
    assert not any(noticed(*samples))


@pytest.mark.parametrize(
    ("change", "kind", "code"),
    [
        (gpu(ecc_volatile_uncorrected=1), SignalKind.ECC, 1),
        (gpu(ecc_aggregate_uncorrected=6), SignalKind.ECC, 1),
        (gpu(ecc_volatile_corrected=LIMITS.ecc_corrected), SignalKind.ECC, 0),
        (gpu(remap_pending=True), SignalKind.REMAP, 0),
        (gpu(remap_failed=True), SignalKind.REMAP, 1),
        (gpu(lost=True), SignalKind.GPU_LOST, None),
        (gpu(silent=True), SignalKind.SILENT, None),
        ({"gpus": ()}, SignalKind.GPU_LOST, None),
        (gpu(pcie_replays=2), SignalKind.PCIE, None),
        (gpu(nvlinks=(NvLink(link=0, up=False),)), SignalKind.NVLINK, None),
        (gpu(nvlinks=(NvLink(link=0, up=True, replays=1),)), SignalKind.NVLINK, None),
        (
            gpu(nvlinks=(NvLink(link=0, up=True, recoveries=1),)),
            SignalKind.NVLINK,
            None,
        ),
        (
            gpu(nvlinks=(NvLink(link=0, up=True, crc_errors=1001),)),
            SignalKind.NVLINK,
            None,
        ),
        (port(up=False), SignalKind.PORT_DOWN, None),
        (port(downs=1), SignalKind.PORT_DOWN, None),
        (port(errors=11), SignalKind.PORT_ERRORS, None),
        ({"ports": (), "silent": ("ports",)}, SignalKind.SILENT, None),
        ({"disks": (replace(DISK, free_bytes=49),)}, SignalKind.DISK_FULL, None),
        ({"disks": (replace(DISK, read_only=True),)}, SignalKind.DISK_ERRORS, None),
        (
            {"disks": (DiskSample(path="/data", silent=True),), "silent": ("/data",)},
            SignalKind.SILENT,
            None,
        ),
    ],
)
def test_a_change_for_the_worse_is_told_at_once(
    change: dict[str, Any], kind: SignalKind, code: int | None
) -> None:
    assert at_once(change) == [(kind, code)]


@pytest.mark.parametrize(
    "change",
    [
        gpu(ecc_volatile_corrected=LIMITS.ecc_corrected - 1),
        gpu(ecc_aggregate_uncorrected=0),  # the driver counts anew
        gpu(pcie_replays=1),
        gpu(throttle=("sw_power_cap",)),
        gpu(
            nvlinks=(NvLink(link=0, up=True, crc_errors=999), NvLink(link=1, up=False))
        ),
        port(errors=10),
        {"disks": (replace(DISK, free_bytes=51),)},
    ],
)
def test_what_is_within_its_limits_is_not_told(change: dict[str, Any]) -> None:
    assert at_once(change) == []


@pytest.mark.parametrize(
    ("change", "kind", "seconds"),
    [
        (
            gpu(throttle=("hw_thermal_slowdown",)),
            SignalKind.THROTTLE,
            LIMITS.throttle_seconds,
        ),
        (gpu(pcie_width=8), SignalKind.PCIE, LIMITS.pcie_seconds),
        (gpu(pcie_generation=4), SignalKind.PCIE, LIMITS.pcie_seconds),
        (port(bits_per_second=200e9), SignalKind.PORT_SLOW, LIMITS.port_slow_seconds),
        ({"clock_offset_seconds": 0.6}, SignalKind.CLOCK, LIMITS.clock_lasting_seconds),
        (
            {"clock_offset_seconds": -0.6},
            SignalKind.CLOCK,
            LIMITS.clock_lasting_seconds,
        ),
    ],
)
def test_what_may_pass_is_told_when_it_has_lasted(
    change: dict[str, Any], kind: SignalKind, seconds: float
) -> None:
    begun = later(NODE, **change)
    *early, last = noticed(
        NODE, begun, later(begun, seconds - 1), later(begun, seconds)
    )
    assert not any(early)
    assert [one.kind for one in last] == [kind]
    passed = later(begun, seconds - 1)
    recovered = later(NODE, SECONDS + seconds)
    assert not any(noticed(NODE, begun, passed, recovered, later(passed, 2)))


def test_an_idle_gpu_saves_power_with_a_slow_link_for_as_long_as_it_likes() -> None:
    slow = later(NODE, **gpu(utilisation=0.0, pcie_generation=1, pcie_width=8))
    assert not any(noticed(NODE, slow, later(slow, 2 * LIMITS.pcie_seconds)))


def test_what_lasts_is_told_again_now_and_then() -> None:
    down = later(NODE, **port(up=False))
    again = LIMITS.again_seconds
    told = noticed(
        NODE, down, later(down, again - 1), later(down, again), later(down, again + 1)
    )
    assert [len(signals) for signals in told] == [0, 1, 0, 1, 0]


def test_what_passes_and_comes_again_is_told_again() -> None:
    down = later(NODE, **port(up=False))
    told = noticed(NODE, down, later(NODE, 20), later(down, 20))
    assert [len(signals) for signals in told] == [0, 1, 0, 1]


def test_a_silent_gpu_is_not_mended_by_its_silence() -> None:
    sick = later(NODE, **gpu(remap_failed=True))
    silent = later(sick, **gpu(silent=True))
    all_silent = later(silent, gpus=(), ports=(), disks=(), silent=("sensors",))
    *_, back = noticed(NODE, sick, silent, all_silent, later(sick, 30))
    assert back == ()


def test_a_reader_that_does_not_answer_says_nothing_of_any_gpu() -> None:
    """The node may only have been busy: a GPU of which nobody has asked is not at
    fault."""
    slow = later(NODE, **gpu(silent=True), ports=(), disks=(), silent=("sensors",))
    assert [(one.kind, one.device, one.gpu) for one in noticed(NODE, slow)[-1]] == [
        (SignalKind.SILENT, "sensors", None)
    ]


def test_a_counter_that_rose_in_silence_is_told_after_it() -> None:
    silent = later(NODE, **gpu(silent=True))
    worse = later(silent, **gpu(ecc_volatile_uncorrected=2))
    assert [(one.kind, one.value) for one in noticed(NODE, silent, worse)[-1]] == [
        (SignalKind.ECC, 2.0)
    ]


def test_a_port_that_never_was_up_has_no_cable() -> None:
    dark = replace(NODE, **port(up=False))
    assert not any(noticed(dark, later(dark), later(dark, 20)))


def test_one_word_of_a_driver_by_two_ways_is_one_signal() -> None:
    word = Happening(at=50.0, kind=SignalKind.XID, text="GPU 3: XID 79", code=79, gpu=3)
    memory, first = hear(RuleMemory(), word)
    memory, second = hear(memory, replace_at(word, 51.0))
    memory, other = hear(memory, replace_at(word, 51.0, gpu=2))
    memory, third = hear(memory, replace_at(word, 50.0 + LIMITS.twice_seconds))
    assert [len(one) for one in (first, second, other, third)] == [1, 0, 1, 1]
    assert (first[0].code, first[0].gpu, first[0].at) == (79, 3, 50.0)


def replace_at(word: Happening, at: float, gpu: int = 3) -> Happening:
    return Happening(at=at, kind=word.kind, text=word.text, code=word.code, gpu=gpu)


LINE = Happening(
    at=1001.0,
    kind=SignalKind.XID,
    text="GPU 3: XID 79",
    code=79,
    gpu=3,
    confirmed=False,
)


def test_a_line_of_the_kernels_log_is_confirmed_by_the_drivers_event() -> None:
    memory, alone = hear(RuleMemory(), LINE)
    memory, event = hear(memory, replace_at(LINE, 1002.0))
    _, again = hear(memory, replace_at(LINE, 1003.0))
    assert [one.confirmed for one in alone] == [False]
    assert [(one.confirmed, one.at) for one in event] == [(True, 1001.0)]
    assert again == ()


@pytest.mark.parametrize(
    ("change", "confirms"),
    [
        (gpu(lost=True), True),
        (gpu(silent=True), True),
        (gpu(needs_recovery=True), True),
        (gpu(ecc_volatile_uncorrected=1), True),
        (gpu(remap_failed=True), True),
        ({"gpus": ()}, True),
        (gpu(), False),
        (gpu(ecc_volatile_corrected=LIMITS.ecc_corrected), False),
        (port(up=False), False),
    ],
)
def test_a_line_of_the_kernels_log_is_confirmed_by_a_gpu_that_is_hurt(
    change: dict[str, Any], confirms: bool
) -> None:
    memory, _ = notice(RuleMemory(), NODE)
    memory, _ = hear(memory, LINE)
    memory, signals = notice(memory, later(NODE, **change))
    lines = [
        (one.kind, one.code, one.confirmed) for one in signals if one.code == LINE.code
    ]
    assert lines == [(SignalKind.XID, 79, True)] * confirms
    assert len(memory.waiting) == (0 if confirms else 1)


def test_a_line_that_no_driver_confirms_is_waited_for_no_longer() -> None:
    memory, _ = notice(RuleMemory(), NODE)
    memory, _ = hear(memory, LINE)
    memory, _ = notice(memory, later(NODE, LIMITS.confirm_seconds + 2.0))
    _, signals = notice(
        memory, later(NODE, LIMITS.confirm_seconds + 12.0, **gpu(lost=True))
    )
    assert [one.kind for one in signals] == [SignalKind.GPU_LOST]
