"""Codes that programs read: each is documented, and its remedy can be typed."""

import re

import msgspec
import pytest

from corral.cli.command_tree import COMMANDS
from corral.domain.cause import Cause
from corral.domain.cluster_warning import WarningCode
from corral.domain.coded import Coded
from corral.domain.event_kind import (
    KIND_OF_LIVENESS,
    KIND_OF_MOVE,
    KIND_OF_SIGNAL,
    EventKind,
)
from corral.domain.job_states import JobEvent, StopWhy
from corral.domain.node import Liveness
from corral.domain.node_signal import SignalKind
from corral.domain.reason_code import CODE_OF_STOP, ReasonCode
from corral.domain.receipt import ReceiptKind
from corral.domain.trouble_kind import TroubleKind

ENUMS = (Cause, EventKind, ReasonCode, ReceiptKind, StopWhy, TroubleKind, WarningCode)
CODES = [code for enum in ENUMS for code in enum]


@pytest.mark.parametrize(
    "code", CODES, ids=lambda code: f"{type(code).__name__}.{code.name}"
)
def test_each_code_has_a_meaning_and_a_remedy_that_can_be_typed(code: Coded) -> None:
    assert code.meaning
    assert not code.meaning.endswith(".")
    names = {command.name.split()[0] for command in COMMANDS}
    for name in re.findall(r"corral ([a-z]+)", code.remedy):
        assert name in names


def test_each_move_state_and_signal_is_an_event() -> None:
    assert set(KIND_OF_MOVE) == set(JobEvent)
    assert set(KIND_OF_LIVENESS) == set(Liveness)
    assert set(KIND_OF_SIGNAL) == set(SignalKind)


def test_a_stopped_job_says_why() -> None:
    assert set(CODE_OF_STOP) == set(StopWhy)
    assert [why for why in StopWhy if why.is_requeue] == [
        StopWhy.PREEMPT,
        StopWhy.REQUEUE,
        StopWhy.DRAIN,
    ]


def test_a_code_of_another_version_is_read() -> None:
    assert msgspec.json.decode(b'"elsewhere"', type=EventKind) is EventKind.OTHER
    assert msgspec.json.decode(b'"Elsewhere"', type=ReasonCode) is ReasonCode.NONE
