"""corral top without a terminal, without textual, and without a head."""

import json
from types import SimpleNamespace

import pytest

from corral.cli.main import run
from corral.cli.top import command
from tests.api.heads import Agent, Head, eventually

SPEC = {"name": "train", "run": "true", "resources": {"gpu": 1}}


def test_one_look_is_plain_text_also_where_nothing_is_a_terminal(
    head: Head, agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    with head.http() as http:
        for at in range(8):
            http.post("/v1/jobs", json={"specs": [SPEC], "key": f"k{at}"})
    eventually(lambda: len(head.control.world.allocations) == 4)
    for words in (["top", "--once"], ["top"]):
        assert run(words) == 0
        told = capsys.readouterr().out
        assert "GPUs ████████████ 4 of 4 used, 0 free" in told
        assert "nodes 1 of 1 alive  jobs 0 running, 4 waiting" in told
        assert "n1" in told
        assert told.count("STARTING") == 4
        assert told.count("QUEUED") == 4
        assert "\x1b" not in told
    assert run(["top", "--once", "--rows", "3"]) == 0
    told, said = capsys.readouterr()
    assert told.count("train") == 3
    assert "there are more jobs: corral ps" in said


def test_one_look_as_json_has_all_that_the_view_knows(
    head: Head, agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"]["gpus"]["total"] == 4
    assert found["gpus"]["nodes"][0]["node"] == "n1"
    assert (found["jobs"], found["more_jobs"]) == ([], False)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    is_one = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(command, "sys", SimpleNamespace(stdin=is_one, stdout=is_one))


@pytest.mark.usefixtures("terminal")
def test_without_textual_it_says_what_to_install_and_what_does_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert run(["top"]) == 3
    told = capsys.readouterr().err
    assert "corral top needs textual, which is not installed here" in told
    assert "pip install 'corral[tui]'" in told
    assert "corral top --once" in told


@pytest.mark.usefixtures("terminal")
def test_a_head_that_is_not_there_is_refused_before_a_screen_opens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: name)
    monkeypatch.setenv("CORRAL_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("CORRAL_TOKEN", "token-of-nobody-0123456789abcdef")
    for words in (["top"], ["top", "--once"]):
        assert run(words) == 4
        assert "no head answers at http://127.0.0.1:9" in capsys.readouterr().err
