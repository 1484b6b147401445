"""Examples in the help of commands."""

import pytest

from corral.cli.command_tree import COMMANDS
from corral.cli.examples import EXAMPLES
from corral.cli.main import build, run


def test_each_command_has_an_example_and_no_other_has() -> None:
    hidden = {command.name for command in COMMANDS if not command.show}
    assert {command.name for command in COMMANDS} - hidden <= EXAMPLES.keys()
    assert EXAMPLES.keys() <= {command.name for command in COMMANDS}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_one_of_its_command(name: str) -> None:
    group = name.removesuffix(" look")
    assert all(line.startswith(f"corral {group}") for line in EXAMPLES[name])


def test_help_ends_with_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["queue", "set", "--help"]) == 0
    text = capsys.readouterr().out
    assert "For example:" in text
    assert "    corral queue set vision --gpus 8 --borrow 4" in text


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_options_of_an_example_exist(name: str) -> None:
    app = build(examples=False)
    for line in EXAMPLES[name]:
        words = line.split(" -- ")[0].split(" > ")[0].split()[1:]
        app.parse_args(
            [*words, *(["--", "true"] if " -- " in line else [])], exit_on_error=False
        )
