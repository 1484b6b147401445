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
    named: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
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
        (["no/config.json"], 3, "run: ls ."),
        (["bytes.json"], 3, "bytes.json cannot be read"),
        (["byte.json"], 3, "did you mean bytes.json?"),
        (["broken.json"], 3, "broken.json is not valid JSON: line 2, column 17"),
        (["list.json"], 3, "list.json is not a model's config"),
        (["deep.json"], 3, "deep.json cannot be read as JSON"),
        (["./notes"], 3, "notes is not valid JSON: line 1, column 1"),
        (["./folder"], 3, "folder is a folder without a config.json"),
        (["folder/empty"], 3, "there is no model 'folder/empty'"),
        (["a" * 5000], 3, f"there is no model '{'a' * 80}...'\n"),
        (["llama-3.1-8b", "--gpu", "h1000"], 3, "did you mean H100?"),
        (["llama-3.1-8b", "--batch", "0"], 3, "batch cannot be 0"),
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
    (tmp_path / "broken.json").write_text('{"model_type": "llama",\n "hidden_size": }')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "notes").write_text("hello")
    (tmp_path / "folder/empty").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert run(["plan", "model", *words]) == code
    assert said in capsys.readouterr().err
