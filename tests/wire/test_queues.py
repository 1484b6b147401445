"""Files of `kind: queues`: what they mean, what is wrong with them and where, what they change."""

import pytest
from hypothesis import given

from corral.domain.errors import SpecInvalid
from corral.domain.ids import QueueName
from corral.domain.queue import Policy, Queue, QueueTree, whole_tree
from corral.wire.document import Document, documents_of
from corral.wire.queues import changes_of, form_of, is_queue_file, read_queues
from tests.schedule.test_queues import trees

FILE = """kind: queues
half_life: 3d
guard: 30s
queues:
  - name: research
    gpus: {h100: 8, any: 4}
    weight: 2
    borrow: 0
    lend: 4
    priorities: [low, normal]
    max_duration: 24h
    budget: {money: 900, rates: {h100: 2.5, any: 1}, period: 30d, then: low}
    queues:
      - {name: vision, gpus: 2, max_per_user: 1.5, policy: fifo}
  - name: infra
    budget: {gpu_hours: 10, until: 2026-12-31}
"""


def read(text: str) -> Document:
    return documents_of(text, source="q.yaml")[0]


def test_every_field_of_a_file_is_read() -> None:
    document = read(FILE)
    assert is_queue_file(document)
    asked = read_queues(document)
    research, vision, infra = asked.queues
    assert (asked.whole, asked.half_life_seconds, asked.guard_seconds) == (True, 259200.0, 30.0)
    assert research.nominal == (("any", 4000), ("h100", 8000))
    assert (research.borrow_limit_millis, research.lend_limit_millis) == (0, 4000)
    assert (research.lowest_priority, research.highest_priority) == (-100, 0)
    assert (research.weight, research.longest_seconds) == (2.0, 86400.0)
    assert research.budget is not None
    assert (research.budget.money, research.budget.demote_to) == (900.0, -100)
    assert research.budget.rate("h100") == 2.5
    assert research.budget.rate("a100") == 1.0
    assert (vision.parent, vision.most_per_user_millis) == ("research", 1500)
    assert vision.policy == Policy.FIFO
    assert infra.budget is not None
    assert (infra.budget.until, infra.budget.demote_to) == (1798675200.0, None)


@pytest.mark.parametrize(
    ("line", "text", "hint"),
    [
        ("gpus: -1", "q.yaml:3: queues[0].gpus", "write: gpus: 8"),
        ("borrow: many", "is no number of GPUs", "write: borrow: 8"),
        ("gpu: 8", "there is no such field", "known: name, parent, gpus"),
        ("policy: lifo", '"lifo" is no policy', "one of: default, fifo, fifo-skip, sjf"),
        ("priorities: low", "the lowest and the highest", "[low, normal]"),
        ("max_duration: 24", "24 of what?", "write the unit"),
        ("parent: nobody", "there is no queue nobody", "name one of: a"),
        ("budget: {gpu_hours: 1, until: soon}", "is no date", "2026-12-31"),
        ("budget: {money: 1}", "money needs rates", "rates"),
        ("budget: {hours: 1}", "there is no such field", "gpu_hours"),
        ("queues: [{name: b, gpus: 4}]", "given 4 more", "give a more GPUs"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(line: str, text: str, hint: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        read_queues(read(f"kind: queues\nqueues: [\n  {{name: a, {line}}}]\n"))
    assert text in refused.value.message
    assert hint in refused.value.hint


@given(trees())
def test_a_queue_that_is_written_down_reads_back_the_same(tree: QueueTree) -> None:
    document = Document(value={"queues": [form_of(queue) for queue in tree.queues]}, source="q")
    assert read_queues(document).queues == tree.queues
    assert changes_of(tree, whole_tree(read_queues(document).queues)) == []


def test_a_change_is_told_line_by_line() -> None:
    before = whole_tree([Queue(name=QueueName("a"), nominal=(("h100", 8000),))])
    after = whole_tree(
        [Queue(name=QueueName("b"), weight=2.0), Queue(name=QueueName("default"), weight=0.5)],
        guard_seconds=60.0,
    )
    assert changes_of(before, after) == [
        "~ guard: 2m -> 1m",
        "- a",
        "+ b: weight: 2",
        "~ default: weight: none -> 0.5",
    ]
