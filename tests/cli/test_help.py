"""Help of every command: each option names its value, and defaults are those that a
person can use."""

import re

import pytest

from corral.cli.command_tree import COMMANDS
from corral.cli.help_panels import default_text
from corral.cli.main import run

ODD = re.compile(r"\[default: *(\"\"|\(\)|\[\]|False|None|\])|--empty-|--no-no-")
PYTHON_TYPE = re.compile(r"(?<![A-Z])(STR|INT|FLOAT)\b(\.\.\.)?")


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_no_option_shows_a_python_type(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*name.split(), "--help"]) == 0
    shown = [
        line
        for line in capsys.readouterr().out.splitlines()
        if PYTHON_TYPE.search(line)
    ]
    assert not shown


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_no_option_shows_an_empty_default_or_a_useless_opposite(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # each text stays on one line
    assert run([*name.split(), "--help"]) == 0
    assert not [
        line for line in capsys.readouterr().out.splitlines() if ODD.search(line)
    ]


def test_the_help_of_a_report_does_not_show_a_default_that_job_changes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert run(["report", "usage", "--help"]) == 0
    out = capsys.readouterr().out
    assert "(default: queue); with --job, the rows are always jobs" in out
    assert "[default: queue]" not in out


@pytest.mark.parametrize(
    ("value", "text"),
    [("", None), (False, None), ((), None), (0, "0"), (1e12, "1e12"), (10.0, "10")],
)
def test_a_default_is_shown_as_a_person_types_it(
    value: object, text: str | None
) -> None:
    assert default_text(value) == text


def test_each_planner_command_shows_its_examples_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in COMMANDS:
        if command.name.startswith("plan "):
            assert run([*command.name.split(), "--help"]) == 0
            assert capsys.readouterr().out.count("For example:") == 1, command.name
