"""plan model as it is typed, and models that are files."""

import json
from pathlib import Path

import pytest

from corral.cli.main import run
from tests.plan.test_said import LLAMA


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run(["plan", "model", *words, "--json"]) == 0
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    return told


@pytest.mark.parametrize("named", ["config.json", "."])
def test_a_config_file_says_the_same_as_its_name(
    named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    by_file = planned(capsys, f"./{named}", "--gpu", "l40s")
    by_name = planned(capsys, "llama-3.1-8b", "--gpu", "l40s")
    assert by_file["answers"] == by_name["answers"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["./no/config.json"], 3, "there is no file 'no/config.json'"),
        (["bytes.json"], 3, "bytes.json cannot be read"),
        (["llama-3.1-8b", "--gpu", "h1000"], 3, "did you mean H100?"),
        (["llama-3.1-8b", "--batch", "0"], 3, "batch is 0"),
        ([], 2, "run: corral plan model --help"),
    ],
)
def test_what_cannot_be_planned_is_told(
    words: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{")
    monkeypatch.chdir(tmp_path)
    assert run(["plan", "model", *words]) == code
    assert said in capsys.readouterr().err
