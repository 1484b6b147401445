"""Stacks on a terminal: names that a program has chosen stay names."""

from types import SimpleNamespace
from typing import Any

import pytest

from corral.cli.stacks import stacks
from corral.domain.process_stacks import (
    ProcessRole,
    ProcessStacks,
    StackFrame,
    ThreadStack,
)
from corral.wire.stack_answers import NodeTroubleView, ProcessStacksView, Stacks

EVIL = "f\x1b[2J\x9b31m\u202e\r\nrank 9\t" + "A" * 5_000


class OneAnswer:
    """Connection to a head that gives one answer."""

    def __init__(self, answer: Stacks) -> None:
        self.answer = answer

    def __enter__(self) -> "OneAnswer":
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    def stacks(self, job: str, *, rank: int | None) -> Stacks:
        return self.answer


@pytest.mark.parametrize("every", [False, True])
def test_names_of_a_program_do_not_reach_the_terminal_raw(
    every: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = StackFrame(function=EVIL, file=EVIL, line=1)
    process = ProcessStacks(
        pid=7,
        role=ProcessRole.RANK,
        rank=0,
        local_rank=0,
        state="S",
        command=EVIL,
        threads=(ThreadStack(name=EVIL, frames=(frame,), is_main=True),),
        trouble=EVIL,
    )
    answer = Stacks(
        job="j1",
        name="train",
        attempt=1,
        processes=[ProcessStacksView.of("n1", process)],
        missing=[NodeTroubleView(node="n2", trouble="node n2 does not answer")],
    )
    common: Any = SimpleNamespace(client=lambda: OneAnswer(answer), json=False)
    stacks("train", every=every, common=common)
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert all(character.isprintable() or character == "\n" for character in text)
    assert not any(line.startswith("rank 9") for line in text.splitlines())
    assert max(map(len, text.splitlines())) < 1_000
    assert "node n2 does not answer" in printed.err
