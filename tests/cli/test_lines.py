"""Lines of a log: with their times and ranks, and later attempts noted beside them."""

import io

import pytest

from corral.cli.log_lines import LogLinePrinter
from corral.wire.api import LogLines


def test_a_later_attempt_is_noted_once_and_the_lines_stay_as_they_were(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = io.StringIO()
    lines = LogLinePrinter(out, label=False)
    for attempt, data in (
        (1, "a\n"),
        (1, "b\n"),
        (2, "c\n"),
        (1, "late\n"),
        (2, "d\n"),
    ):
        lines.write(LogLines(rank=0, attempt=attempt, data=data))
    lines.finish()
    assert out.getvalue() == "a\nb\nc\nlate\nd\n"
    assert capsys.readouterr().err.count("attempt 2 begins") == 1


def test_a_line_has_the_time_at_which_it_began() -> None:
    out = io.StringIO()
    lines = LogLinePrinter(out, label=True, times=True)
    lines.write(LogLines(rank=0, attempt=1, data="a\nbeg", times=[0.0, 0.0]))
    lines.write(LogLines(rank=1, attempt=1, data="other\n", times=[None, None]))
    lines.write(LogLines(rank=0, attempt=1, data="un\nc\n", times=[5.0, 6.0, 6.0]))
    lines.write(LogLines(rank=0, attempt=1, data="cut", times=[7.0]))
    lines.write(LogLines(rank=0, attempt=2, data="new\n", times=[9.0, 9.0]))
    lines.finish()
    assert [
        line.replace(" UTC", "").split()[1:] for line in out.getvalue().splitlines()
    ] == [
        ["00:00:00", "[0]", "a"],
        ["unknown", "[1]", "other"],
        ["00:00:00", "[0]", "begun"],
        ["00:00:06", "[0]", "c"],
        ["00:00:07", "[0]", "cut"],
        ["00:00:09", "[0]", "new"],
    ]
