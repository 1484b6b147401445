"""Where a later attempt begins is noted beside the lines of a log."""

import io

import pytest

from corral.cli.lines import Lines
from corral.wire.api import LogLines


def test_a_later_attempt_is_noted_once_and_the_lines_stay_as_they_were(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = io.StringIO()
    lines = Lines(out, label=False)
    for attempt, data in ((1, "a\n"), (1, "b\n"), (2, "c\n"), (1, "late\n"), (2, "d\n")):
        lines.write(LogLines(rank=0, attempt=attempt, data=data))
    lines.finish()
    assert out.getvalue() == "a\nb\nc\nlate\nd\n"
    assert capsys.readouterr().err.count("attempt 2 begins") == 1
