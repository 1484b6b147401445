"""What a node has noticed explains ends that its faults make, and no others."""

import pytest

from corral.domain.failure_class import FailureKind as F
from corral.domain.node_fault import NodeCondition
from corral.domain.node_signal import FULL, UNCORRECTED, SignalKind
from corral.health.fault_explanations import CLOCKS_SECONDS, explanation


def condition(
    kind: SignalKind, code: int | None = None, gpu: int | None = None, device: str = ""
) -> NodeCondition:
    return NodeCondition(
        kind=kind, code=code, gpu=gpu, device=device, text="", since=0.0, last=0.0
    )


@pytest.mark.parametrize(
    ("kind", "code", "failed", "is_then"),
    [
        (SignalKind.PORT_DOWN, None, F.PEER, F.FABRIC),
        (SignalKind.PORT_DOWN, None, F.HANG, F.FABRIC),
        (SignalKind.PORT_DOWN, None, F.KILLED, None),
        (SignalKind.MEMORY, UNCORRECTED, F.CRASH, F.CLUSTER),
        (SignalKind.MEMORY, FULL, F.KILLED, F.HOST_MEMORY),
        (SignalKind.MEMORY, FULL, F.CRASH, None),
        (SignalKind.MEMORY, 0, F.CRASH, None),
        (SignalKind.GPU_LOST, None, F.GPU_PROGRAM, F.GPU_FAULT),
        (SignalKind.GPU_LOST, None, F.KILLED, None),
        (SignalKind.ECC, UNCORRECTED, F.CRASH, F.GPU_FAULT),
        (SignalKind.ECC, 0, F.CRASH, None),
        (SignalKind.DISK_ERRORS, None, F.DATA, F.STORAGE),
        (SignalKind.DISK_ERRORS, None, F.MODULE, None),
        (SignalKind.SILENT, None, F.HANG, F.STORAGE),
        (SignalKind.XID, 74, F.GPU_FAULT, F.GPU_FAULT),
        (SignalKind.XID, 74, F.CRASH, None),
        (SignalKind.THROTTLE, None, F.HANG, None),
    ],
)
def test_a_fault_explains_what_it_makes(
    kind: SignalKind, code: int | None, failed: F, is_then: F | None
) -> None:
    rule = explanation(failed, 1, condition(kind, code), 1.0)
    assert (rule and rule.by) == is_then


def test_a_driver_that_is_silent_is_its_gpus_fault() -> None:
    rule = explanation(F.HANG, None, condition(SignalKind.SILENT, gpu=1), 1.0)
    assert rule is not None
    assert rule.by == F.GPU_FAULT


@pytest.mark.parametrize("device", ["sensors", "ports"])
def test_a_reader_that_is_slow_explains_nothing(device: str) -> None:
    assert (
        explanation(F.HANG, None, condition(SignalKind.SILENT, device=device), 1.0)
        is None
    )


@pytest.mark.parametrize(("exit_code", "explains"), [(135, True), (139, False)])
def test_a_page_of_a_file_that_cannot_be_read_is_a_bus_error(
    exit_code: int, explains: bool
) -> None:
    rule = explanation(F.CRASH, exit_code, condition(SignalKind.DISK_ERRORS), 1.0)
    assert (rule is not None) == explains


@pytest.mark.parametrize(
    ("before_seconds", "explains"),
    [
        (-CLOCKS_SECONDS - 0.1, False),
        (-CLOCKS_SECONDS, True),
        (5.0, True),
        (5.1, False),
    ],
)
def test_what_was_long_before_or_later_explains_nothing(
    before_seconds: float, explains: bool
) -> None:
    full = condition(SignalKind.MEMORY, FULL)
    assert (explanation(F.KILLED, 137, full, before_seconds) is not None) == explains
