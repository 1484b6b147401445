"""Help of every command: each option names its value."""

import re

import pytest

from corral.cli.command_tree import COMMANDS
from corral.cli.main import run

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
