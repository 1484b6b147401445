"""Signals wait on the node's disk, numbered, until the head has recorded them."""

from dataclasses import replace
from pathlib import Path

from corral.agent.telemetry.fault_rules import RuleMemory
from corral.agent.telemetry.rule_state import RulePast, signal
from corral.agent.telemetry.signal_journal import (
    FILE,
    MOST_AT_ONCE,
    MOST_KEPT,
    Notebook,
)
from corral.domain.ids import BootId
from corral.domain.node_signal import Signal, SignalKind

BOOT = BootId("b1")
REMEMBERED = RuleMemory(told={"gpu/GPU-3/lost": 5.0}, log_read_to=7)


def signals(count: int) -> tuple[Signal, ...]:
    return tuple(signal(float(at), SignalKind.XID, f"XID {at}") for at in range(count))


def numbers(book: Notebook) -> list[int]:
    return [one.number for one in book.to_tell]


def test_a_node_without_a_past_goes_on_from_what_the_head_has_recorded(
    tmp_path: Path,
) -> None:
    book = Notebook(tmp_path / FILE, BOOT)
    book.take(RuleMemory(), signals(2))
    assert numbers(book) == [], "it is not known yet which numbers are taken"
    book.recorded(41)
    assert numbers(book) == [42, 43]


def test_what_is_recorded_is_told_no_more(tmp_path: Path) -> None:
    book = Notebook(tmp_path / FILE, BOOT)
    book.recorded(0)
    book.take(RuleMemory(), signals(3))
    book.recorded(2)
    assert numbers(book) == [3]
    assert numbers(Notebook(tmp_path / FILE, BOOT)) == [3]


def test_the_next_agent_goes_on_with_what_waits_and_what_was_told(
    tmp_path: Path,
) -> None:
    book = Notebook(tmp_path / FILE, BOOT)
    book.recorded(0)
    book.take(REMEMBERED, signals(2))
    again = Notebook(tmp_path / FILE, BOOT)
    assert (numbers(again), again.memory) == ([1, 2], REMEMBERED)
    again.take(again.memory, signals(1))
    assert numbers(again) == [1, 2, 3]


def test_the_next_agent_may_have_fewer_gpus_and_misses_none(tmp_path: Path) -> None:
    book = Notebook(tmp_path / FILE, BOOT)
    book.recorded(0)
    book.take(
        RuleMemory(past=RulePast(gpus={"GPU-3": 3}, links=frozenset({"GPU-3/0"}))),
        signals(1),
    )
    past = Notebook(tmp_path / FILE, BOOT).memory.past
    assert (dict(past.gpus), set(past.links)) == ({}, {"GPU-3/0"})


def test_numbers_that_the_head_knows_already_are_not_given_again(
    tmp_path: Path,
) -> None:
    book = Notebook(tmp_path / FILE, BOOT)
    book.recorded(0)
    book.recorded(9)
    book.take(RuleMemory(), signals(1))
    assert numbers(book) == [10]


def test_a_machine_that_has_started_anew_remembers_no_more_than_what_waits(
    tmp_path: Path,
) -> None:
    book = Notebook(tmp_path / FILE, BOOT)
    book.recorded(0)
    book.take(REMEMBERED, signals(2))
    again = Notebook(tmp_path / FILE, BootId("b2"))
    assert (numbers(again), again.memory) == ([1, 2], RuleMemory())


def test_of_more_than_can_be_kept_the_oldest_go_and_a_beat_has_some_at_once(
    tmp_path: Path,
) -> None:
    book = Notebook(tmp_path / FILE, BOOT)
    book.recorded(0)
    for _ in range(3):
        book.take(RuleMemory(), signals(MOST_KEPT // 2))
    kept = MOST_KEPT // 2 * 3
    assert [one.number for one in book.waiting] == list(
        range(kept - MOST_KEPT + 1, kept + 1)
    )
    assert book.to_tell == book.waiting[:MOST_AT_ONCE]


def test_a_file_that_does_not_read_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    book = Notebook(tmp_path / FILE, BOOT)
    book.recorded(7)
    book.take(replace(REMEMBERED), signals(1))
    assert numbers(Notebook(tmp_path / FILE, BOOT)) == [8]
