"""Corrections of queues: each is read from a file, and typed for `corral queue set`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from shlex import split
from typing import Any

import pytest

from corral.cli.head_options import Common
from corral.cli.main import run
from corral.domain.field_correction import FieldCorrection, corrected
from corral.domain.queue import Queue
from corral.domain.queue_faults import QueueFault, faults
from corral.wire.queue_answers import QueueChanges
from corral.wire.queue_corrections import file_text, option_text
from corral.wire.queue_file import read_queue
from corral.wire.yaml_document import documents_of
from tests.domain.faulty_queues import FAULTY_QUEUES

ATTRIBUTES = {
    "parent": ("parent",),
    "gpus": ("nominal",),
    "weight": ("weight",),
    "borrow": ("borrow_limit_millis",),
    "lend": ("lend_limit_millis",),
    "max_per_user": ("most_per_user_millis",),
    "max_duration": ("longest_seconds",),
    "priorities": ("lowest_priority", "highest_priority"),
    "allow": ("allow",),
    "operators": ("operators",),
    "budget": ("budget",),
}
FAULTS = [
    pytest.param(queues, fault, id=f"{fault.field}: {fault.text}")
    for queues, _, _ in FAULTY_QUEUES
    for fault in faults(queues)
]


class Recorder:
    """Client that records the fields of the last queue that was set."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}

    def set_queue(
        self, queue: str, fields: dict[str, Any], *, dry_run: bool
    ) -> QueueChanges:
        self.fields = fields
        return QueueChanges(changes=[], warnings=[])


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()

    @contextmanager
    def client(self: Common) -> Iterator[Recorder]:
        yield recorder

    monkeypatch.setattr(Common, "client", client)
    return recorder


def with_fields(
    queues: list[Queue], fault: QueueFault, fields: Mapping[str, Any]
) -> list[Queue]:
    """Return the queues, with these fields in the queue of the fault."""
    read = read_queue("read", fields).queues[0]
    values = {
        attribute: getattr(read, attribute)
        for field in fields
        for attribute in ATTRIBUTES[field]
    }
    return [
        replace(queue, **values) if queue.name == fault.queue else queue
        for queue in queues
    ]


def remaining(queues: list[Queue], fault: QueueFault) -> list[str]:
    """Return the faults of the same field of the same queue."""
    return [
        other.text
        for other in faults(queues)
        if (other.queue, other.field) == (fault.queue, fault.field)
    ]


@pytest.mark.parametrize(("queues", "fault"), FAULTS)
def test_a_fault_has_either_a_correction_or_an_advice(
    queues: list[Queue], fault: QueueFault
) -> None:
    assert (fault.correction is None) == bool(fault.advice)


@pytest.mark.parametrize(("queues", "fault"), FAULTS)
def test_a_correction_in_a_file_is_read_and_removes_the_fault(
    queues: list[Queue], fault: QueueFault
) -> None:
    if fault.correction is None:
        return
    line = file_text(fault.correction)
    fields = documents_of(line, source="queues.yaml")[0].value
    assert list(fields) == [fault.correction.field]
    assert not remaining(with_fields(queues, fault, fields), fault)


@pytest.mark.parametrize(("queues", "fault"), FAULTS)
def test_typed_options_are_accepted_and_remove_the_fault(
    queues: list[Queue], fault: QueueFault, recorder: Recorder
) -> None:
    if fault.correction is None:
        return
    options = split(option_text(fault.correction))
    assert run(["queue", "set", "a", *options, "--yes"]) == 0
    assert not remaining(with_fields(queues, fault, recorder.fields), fault)


@pytest.mark.parametrize(
    "options",
    [
        "--gpus 8x",
        "--gpus h100:many",
        "--borrow many",
        "--lend -1",
        "--max-per-user many",
        "--weight 0",
        "--weight many",
        "--max-duration 24",
        "--max-duration soon",
        "--priorities low..top",
        "--priorities low..normal..high",
        "--allow @none",
        "--idle 15m",
        "--idle warn:15",
        "--idle warn:2h,reclaim:1h",
        "--gpu-hours -1",
        "--money -1",
        "--money 5 --rates many",
        "--money 5 --rates h100:many",
        "--gpu-hours 5 --period 30",
        "--gpu-hours 5 --until soon",
        "--gpu-hours 5 --then later",
    ],
)
def test_options_are_refused_with_options_that_are_accepted(
    options: str, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["queue", "set", "a", *options.split(), "--yes"]) == 3
    assert not recorder.fields
    _, hint = capsys.readouterr().err.split("write: ")
    first = hint.strip().split(" or ")[0].split(", ")[0]
    assert first.startswith("--")
    assert run(["queue", "set", "a", *split(first), "--yes"]) == 0
    assert recorder.fields


@pytest.mark.parametrize(
    ("correction", "line", "options"),
    [
        (corrected("gpus", 8.0), "gpus: 8", "--gpus 8"),
        (corrected("gpus", 0.5), "gpus: 0.5", "--gpus 0.5"),
        (
            corrected("gpus", 8, {"h100": 8, "any": 4}),
            "gpus: 8 or {h100: 8, any: 4}",
            "--gpus 8 or h100:8,any:4",
        ),
        (
            corrected("max_duration", "24m", "24h", "24s"),
            "max_duration: 24m, 24h or 24s",
            "--max-duration 24m, 24h or 24s",
        ),
        (
            corrected("priorities", ["low", "normal"]),
            "priorities: [low, normal]",
            "--priorities low..normal",
        ),
        (
            corrected("allow", ["@operator", "7", "null"]),
            'allow: ["@operator", "7", "null"]',
            "--allow @operator,7,null",
        ),
        (
            corrected("budget", {"money": 5000.0, "rates": {"h100": 2.5, "any": 1.0}}),
            "budget: {money: 5000, rates: {h100: 2.5, any: 1}}",
            "--money 5000 --rates h100:2.5,any:1",
        ),
        (corrected("parent", None), "parent: null", "--parent none"),
        (corrected("parent", "a: b"), 'parent: "a: b"', "--parent 'a: b'"),
    ],
)
def test_a_correction_has_a_form_for_a_file_and_one_for_the_command_line(
    correction: FieldCorrection, line: str, options: str
) -> None:
    assert file_text(correction) == line
    assert option_text(correction) == options
