"""Numbers as they are typed."""

import json
from decimal import Decimal

import pytest

from corral.cli.main import run
from corral.cli.planner.counts import number


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("8192", "8192"), ("1e6", "1000000"), ("15T", "15000000000000"), ("70b", "70000000000"),
        ("1.5K", "1500"), ("2e3m", "2000000000"), (".5k", "500"), ("1_000", "1000"), ("-3", "-3"),
        ("0.9", "0.9"),
    ],
)  # fmt: skip
def test_a_number_may_have_a_suffix(word: str, value: str) -> None:
    assert number(word) == Decimal(value)


@pytest.mark.parametrize(
    "word", ["", "15X", "K", "1e", "1 T", "1,000", "0x10", "1e5000", "1TT"]
)
def test_what_is_no_number_is_told(word: str) -> None:
    with pytest.raises(ValueError, match="is not a number|too large or too small"):
        number(word)


def answers(capsys: pytest.CaptureFixture[str], *words: str) -> object:
    assert run(["plan", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["answers"]


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("reliability --gpus 1K --days 30 --parameters 70B", "1000 30 70000000000"),
        ("model llama-3.1-8b --context 32k --batch 1e1", "32000 10"),
        (
            "cost --gpus 16 --budget-usd 0.5M --demand 8:1K --assume server_per_gpu=30K",
            "",
        ),
    ],
)
def test_every_number_of_a_plan_may_have_one(
    short: str, long: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = short.split()
    typed = [_long(word) for word in words]
    assert typed != words
    assert answers(capsys, *words) == answers(capsys, *typed)


def _long(word: str) -> str:
    """The same word without suffixes."""
    head, mark, last = word.rpartition("=") if "=" in word else word.rpartition(":")
    try:
        return f"{head}{mark}{number(last):f}"
    except ValueError:
        return word


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            "--gpus 1.5 --days 3",
            2,
            "Invalid value for --gpus: 1.5 is not a whole number.",
        ),
        (
            "--gpus many --days 3",
            2,
            "'many' is not a number; write for example 8192, 0.9, 1e6, 70B or 15T.",
        ),
        ("--gpus 8 --days 3X", 2, "Invalid value for --days: '3X' is not a number"),
        ("--gpus 8 --days inf", 3, "--days cannot be infinite"),
        ("--gpus 8 --days nan", 3, "--days cannot be NaN"),
        ("--gpus 8 --days 1e400", 2, "1e400 is too large or too small."),
        ("--gpus inf --days 3", 2, "inf is not a whole number."),
        ("--gpus 1e30 --days 3", 3, "--gpus cannot be 1e+30"),
        ("--gpus 8 --days 3 --parameters 1e300", 3, "give a number from 1 to 1e+16"),
    ],
)
def test_a_number_that_cannot_be_is_told_with_its_option(
    words: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "reliability", *words.split()]) == code
    assert said in capsys.readouterr().err
