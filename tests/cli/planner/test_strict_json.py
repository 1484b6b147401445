"""What plans answer in JSON is JSON to the letter: no NaN, no Infinity, for any
reader."""

import json
from pathlib import Path

import pytest

from corral.catalog.facts import tables
from corral.cli.main import run

DATA = Path(__file__).parents[3] / "validation/data"
PLANS = (
    "model llama-3.1-70b --gpu h200",
    "model llama-3.1-405b --gpu t4 --gpus 1",
    "model mixtral-8x7b --gpu t4 --gpus 1",
    "train llama-3.2-1b --gpus 8 --tokens 1e9",
    "train llama-3.2-1b --gpus 1 --gpu h100 --tokens 1",
    "serve llama-3.2-1b --qps 1 --input 100 --output 1",
    "serve llama-3.2-1b --qps 1e6 --input 1 --output 100 --gpu t4",
    "cluster --gpus 1 --gpu h100",
    "cluster --gpus 1024 --gpu gb200 --read-gb-per-s 1",
    "cost --gpus 16 --utilisation 0.001",
    "cost --gpus 16 --utilisation 1 --budget-usd 1 --demand 64:1000",
    "cost --gpus 1 --gpu t4 --years 0.08 --assume capital=0 price_fall=0 engineer=0",
    "capacity --run-hours 0.001 --runs 0.001 --run-gpus 0.001",
    "reliability --gpus 8 --days 0.001",
    "reliability --gpus 16384 --days 54 --rate 0.001 --counted 1 --stall-seconds 0.001",
    "prices",
    "prices h100",
    "catalog",
    f"validate collectives {DATA / 'collectives.csv.gz'}",
)


def strict(text: str) -> object:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("words", PLANS)
def test_what_a_plan_answers_is_strict_json(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", *words.split(), "--json"]) == 0
    assert strict(capsys.readouterr().out)


@pytest.mark.parametrize("kind", tables())
def test_every_subject_of_the_catalog_is_strict_json(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "catalog", kind, "--json"]) == 0
    names = json.loads(capsys.readouterr().out)[kind]
    for name in names:
        assert run(["plan", "catalog", kind, name, "--json"]) == 0
        assert strict(capsys.readouterr().out)


@pytest.mark.parametrize(
    "words", ["model nothing", "cost --gpus nan", "cost --years inf"]
)
def test_refusals_are_strict_json(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", *words.split(), "--json"]) in (2, 3)
    assert strict(capsys.readouterr().err)
