"""plan cost as it is typed."""

import json
from pathlib import Path

import pytest

from corral.cli.main import run


def test_any_assumption_is_replaced_by_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["plan", "cost", "--gpus", "16", "--json", "--assume", "pue=1.2", "kwh=0.2"]
    assert run(words) == 0
    assumed = json.loads(capsys.readouterr().out)["assumed"]
    assert any(line.startswith("pue = 1.2 times, as you set it") for line in assumed)
    assert any(line.startswith("kwh = 0.2 ") for line in assumed)


def test_a_demand_has_a_best_mix(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "cost", "--demand", "64:1000", "16:7760"]) == 0
    assert "GPUs to own" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--assume", "pue"], 2, "write --assume NAME=NUMBER"),
        (["--assume", "pue=low"], 2, "--assume: 'low' is not a number"),
        (["--assume", "puee=1"], 3, "did you mean pue?"),
        (["--demand", "64"], 2, "write --demand GPUS:HOURS"),
        (["--demand", "all:8760"], 2, "--demand: 'all' is not a number"),
        (["--demand", "64:1T"], 3, "give GPUS:HOURS from 0"),
        (["--demand", "64:nan"], 3, "give GPUS:HOURS from 0"),
        (["--demand", "64:9000"], 3, "at most 8,784"),
        (["--gpus", "0"], 3, "give a number from 1 to 10,000,000"),
        (["--years", "0"], 3, "give 0.08, a month, to 20"),
        (["--node-gpus", "0"], 3, "--node-gpus cannot be 0"),
        (["--egress-tb-month", "-1"], 3, "--egress-tb-month cannot be -1"),
        (["--gpu", "h1000"], 3, "did you mean H100?"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_form(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "cost", *words]) == code
    assert said in capsys.readouterr().err


def test_one_cloud_or_a_list_of_ones_own_says_the_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.csv"
    own.write_text(
        "subject,quantity,value,unit,source,date\n"
        "ours:h100-sxm,on_demand,1.75,USD a GPU-hour,an offer,2026-11-01\n"
    )
    words = ["plan", "cost", "--cloud", "ours", "--json"]
    assert run([*words, "--prices", str(own)]) == 0
    assumed = json.loads(capsys.readouterr().out)["assumed"]
    assert any(line.startswith("on_demand = 1.75 ") for line in assumed)
    assert run(words) == 3
    assert (
        "there is no price of h100-sxm at the cloud 'ours'" in capsys.readouterr().err
    )
