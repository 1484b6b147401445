"""Commands for which a warm interpreter can stand in."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.agent.shim.warm_command import different_variable, python_command

WORDS = st.text(alphabet="ab'\" $*;&|<>(){}[]~#!=-./\\`\n?", max_size=12)


@pytest.mark.parametrize(
    ("run", "file"),
    [
        ("python train.py", "train.py"),
        ("exec python3 -u ./a/train.py --lr=0.1 'a b'", "./a/train.py"),
        ("/opt/env/bin/python3.11 train.py", "train.py"),
        ("python -O -m package.train --name x", None),
    ],
)
def test_a_plain_command_of_python_is_taken(run: str, file: str | None) -> None:
    command = python_command(run)
    assert command is not None
    assert command.file == file


@pytest.mark.parametrize(
    "run",
    [
        "torchrun train.py",
        "python",
        "python -c 'print(1)'",
        "python -I train.py",
        "A=1 python train.py",
        "python train.py $RANK",
        "python train.py > log",
        "python train.py; true",
        "cd a && python train.py",
        "python *.py",
        "python ~/train.py",
        "python a.py\npython b.py",
    ],
)
def test_any_other_command_is_left_to_the_shell(run: str) -> None:
    assert python_command(run) is None


@given(st.lists(WORDS, max_size=4))
def test_the_words_are_those_that_a_shell_would_pass(words: list[str]) -> None:
    run = " ".join(["python train.py", *words])
    command = python_command(run)
    if command is None:
        return
    shell = f'python() {{ printf "%s\\0" python "$@"; }}; {run}'
    printed = subprocess.run(["bash", "-c", shell], capture_output=True, check=True)
    assert printed.stdout.decode().split("\0")[:-1] == list(command.words)


def test_only_variables_of_ranks_and_attempts_may_differ() -> None:
    prepared = {"PATH": "/bin", "RANK": "0", "CORRAL_ATTEMPT": "2"}
    assert (
        different_variable(
            prepared, prepared | {"RANK": "3", "MLFLOW_RUN_CONTEXT": "{}"}
        )
        == ""
    )
    assert different_variable(prepared, prepared | {"OMP_NUM_THREADS": "1"}) != ""
    assert different_variable(prepared, {"RANK": "0"}) == "PATH"
