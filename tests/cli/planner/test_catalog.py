"""plan catalog: the numbers that plans are made of, with their sources."""

import json

import pytest

from corral.catalog.facts import tables
from corral.cli.main import run


def test_all_kinds_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "catalog", "--json"]) == 0
    kinds = json.loads(capsys.readouterr().out)["kinds"]
    assert len(kinds) == len(tables())
    assert kinds["gpus"] > 20


def test_names_of_a_kind_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "catalog", "gpus"]) == 0
    assert "h100-sxm" in capsys.readouterr().out.split()


def test_each_number_is_shown_with_its_source(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # else a narrow terminal of the tests' folds the source
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["plan", "catalog", "gpus", "H100 SXM 80GB", "--json"]) == 0
    facts = {
        one["quantity"]: one for one in json.loads(capsys.readouterr().out)["facts"]
    }
    assert facts["memory"]["value"] == "80"
    assert facts["memory"]["unit"] == "GB"
    assert facts["memory"]["source"]
    assert run(["plan", "catalog", "gpus", "h100"]) == 0
    assert facts["memory"]["source"] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "hint"),
    [(["gpu"], "did you mean gpus?"), (["gpus", "hh100"], "did you mean H100?")],
)
def test_a_misspelt_name_gets_the_nearest(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "catalog", *words]) == 3
    assert hint in capsys.readouterr().err
