"""The command line starts quickly: nothing heavy is loaded before a command needs
it."""

import importlib
import subprocess
import sys

import pytest

from corral.cli.command import Command
from corral.cli.command_tree import COMMANDS, GROUPS
from corral.cli.main import build

HEAVY = [
    *("pydantic", "httpx2", "fastapi", "sqlalchemy", "asyncio"),
    *("yaml", "msgspec", "websockets", "torch", "uvicorn", "textual"),
]


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["top", "--help"],
        ["metrics", "--help"],
    ],
)
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    script = (
        "import sys; from corral.cli.main import run; run(sys.argv[1:]); "
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True
    )
    assert done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_of_the_tree_is_there_and_says_what_it_does(
    command: Command,
) -> None:
    module, function = command.target.split(":")
    found = getattr(importlib.import_module(f"corral.cli.{module}"), function)
    assert found.__doc__
    assert found.__doc__.strip()


def test_every_group_has_commands() -> None:
    app = build()
    for group in GROUPS:
        assert any(command.name.startswith(f"{group} ") for command in COMMANDS)
        assert app[group]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_the_commands_of_each_shell(shell: str) -> None:
    words = [sys.executable, "-c", "from corral.cli.main import main; main()"]
    done = subprocess.run(
        [*words, "completion", "show", shell], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for command in ("suspend", "checkpoints", "--detach"):
        assert command.lstrip("-") in done.stdout
