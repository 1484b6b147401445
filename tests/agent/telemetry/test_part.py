"""What may hang is asked in a thread of its own, one question at a time."""

import threading

import pytest

from corral.agent.telemetry.guarded_call import GuardedCall
from tests.patience import PATIENCE_SECONDS


def test_while_it_hangs_it_is_asked_nothing_more_and_its_late_answer_counts_for_nothing() -> (
    None
):
    gate, asked = threading.Event(), list[int]()

    def read() -> int:
        asked.append(len(asked))
        assert gate.wait(PATIENCE_SECONDS)
        return asked[-1]

    part = GuardedCall(read)
    part.begin()
    for _ in range(3):
        assert part.end(0.01) is None
        part.begin()
    gate.set()
    late = part.end(PATIENCE_SECONDS)
    part.begin()
    assert (late, part.end(PATIENCE_SECONDS), asked) == (0, 1, [0, 1])


def test_an_answer_that_came_too_late_is_not_that_of_the_next_question() -> None:
    gate, came, asked = threading.Event(), threading.Event(), list[int]()

    def read() -> int:
        asked.append(len(asked))
        assert gate.wait(PATIENCE_SECONDS)
        return asked[-1]

    part = GuardedCall(read)
    part.begin()
    assert part.end(0.01) is None
    gate.set()
    while part._answers.empty():
        came.wait(0.001)
    part.begin()
    assert part.end(PATIENCE_SECONDS) == 1


def test_trouble_is_raised_to_whoever_asks_and_the_next_question_is_answered() -> None:
    troubles = [OSError("gone")]

    def read() -> int:
        if troubles:
            raise troubles.pop()
        return 5

    part = GuardedCall(read)
    part.begin()
    with pytest.raises(OSError, match="gone"):
        part.end(PATIENCE_SECONDS)
    part.begin()
    assert part.end(PATIENCE_SECONDS) == 5
