"""corral simulate answers with the numbers, side by side, and writes what it is told to write."""

import json
from pathlib import Path

import pytest

from corral.cli.main import run

LOG = "job_id,submit_s,duration_s,gpus\n" + "".join(
    f"j{at},{at * 50},{10_000 if at % 5 == 0 else 100},{1 + at % 8}\n" for at in range(60)
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def test_several_policies_side_by_side(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events, html = tmp_path / "events", tmp_path / "page.html"
    words = ["simulate", str(log), "--cluster", "2x8", "--json", "--policy", "fifo", "default"]
    assert run([*words, "--events", str(events), "--html", str(html)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["nodes"], answer["gpus"]) == (2, 16)
    assert set(answer["policies"]) == {"fifo", "default"}
    for numbers in answer["policies"].values():
        assert numbers["jobs"] == 60
        assert numbers["wall_s"] >= 0
        assert 0 < numbers["utilisation"] <= 1
    logged = [json.loads(line) for line in events.read_text().splitlines()]
    assert {event["policy"] for event in logged} == {"fifo", "default"}
    assert "<svg" in html.read_text()


def test_without_a_policy_it_is_the_default_on_the_nodes_beside_the_log(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.with_name("log.nodes.csv").write_text("node_id,gpus\na,8\nb,4\n")
    assert run(["simulate", str(log), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (list(answer["policies"]), answer["gpus"]) == (["default"], 12)


def test_a_policy_of_ones_own(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = log.with_name("mine.toml")
    config.write_text('[patient]\nlike = "default"\npatience = 50.0\n')
    assert run(["simulate", str(log), "--cluster", "2x8", "--config", str(config), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["policies"]) == ["patient"]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ([], 2),
        (["--cluster", "2x8", "--policy", "magic"], 3),
        (["--cluster", "eight"], 3),
        (["--cluster", "1x4"], 3),
        (["--cluster", "2x8", "--nodes", "n.csv"], 2),
    ],
)
def test_what_cannot_be_replayed_is_refused(log: Path, more: list[str], code: int) -> None:
    assert run(["simulate", str(log), *more]) == code
