"""plan capacity as it is typed: by hand, by a log, and refusals."""

import json
from pathlib import Path

import pytest

from corral.cli.main import run

HOUR, DAY = 3_600, 86_400
BY_HAND = ("--run-hours", "20", "--runs", "30", "--run-gpus", "16")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten weeks: each day four jobs of 4 GPUs, which begin together and take two
    hours."""
    rows = [
        f"j{day}-{job},u,q,{day * DAY + 9 * HOUR},{2 * HOUR},4"
        for day in range(70)
        for job in range(4)
    ]
    file = tmp_path / "log.csv"
    file.write_text(
        "\n".join(["job_id,user,vc,submit_s,duration_s,gpus", *rows]) + "\n"
    )
    return file


def answers(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run(["plan", "capacity", *words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["answers"]
    return {one["name"]: one["value"] for one in told}


def test_by_hand_it_is_hours_times_runs_times_gpus(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # 20 h x 30 runs x 16 GPUs = 9,600 GPU-hours; 12,480 / 730 = 17.1 GPUs: three nodes
    # of 8
    found = answers(capsys, *BY_HAND)
    assert found["need"] == 9_600
    assert found["with a buffer of 30 %"] == 24


def test_a_wait_target_is_met_by_so_many_gpus(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who is to wait for at most 2 h needs half of the 16 GPUs that nobody waits
    for."""
    at_once = answers(capsys, "--history", str(log), "--node-gpus", "4", "--wait", "0s")
    later = answers(capsys, "--history", str(log), "--node-gpus", "4", "--wait", "2h")
    assert 16 in at_once.values()
    assert 8 in later.values()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "add --history FILE, or --own"),
        (["--run-hours", "2"], 2, "--runs and --run-gpus must be given too"),
        (["--run-hours", "2", "--runs", "3"], 2, "--run-gpus must be given too"),
        (
            ["--usable", "0.5"],
            2,
            "--run-hours and --runs and --run-gpus must be given too",
        ),
        ([*BY_HAND, "--wait", "1h"], 2, "--wait can be used only with --history"),
        ([*BY_HAND, "--policy", "fifo"], 2, "--policy can be used only with --history"),
        (
            [*BY_HAND, "--growth", "2", "--horizon-days", "3"],
            2,
            "--growth and --horizon-days",
        ),
        ([*BY_HAND, "--usable", "2"], 3, "--usable cannot be 2"),
        ([*BY_HAND, "--node-gpus", "0"], 3, "--node-gpus cannot be 0"),
        (["--history", "log.csv", "--usable", "0.5"], 2, "--usable cannot be combined"),
        (
            ["--history", "log.csv", "--policy", "fifo"],
            2,
            "add for example --wait 30m",
        ),
        (
            ["--history", "log.csv", "--share", "0.5"],
            2,
            "--share can be used only with",
        ),
        (
            ["--history", "log.csv", "--horizon-days", "0"],
            3,
            "--horizon-days cannot be 0",
        ),
        (
            ["--history", "log.csv", "--wait", "1h", "--growth", "-1"],
            3,
            "--growth cannot be -1",
        ),
        (["--history", "log.csv", "--html", "log.csv"], 3, "name another file"),
        (["--history", "none.csv"], 3, "none.csv"),
        (["--history", "log.csv", "--runs", "3"], 2, "--runs cannot be combined"),
        (["--history", "log.csv", "--wait", "soon"], 3, "--wait 30m"),
        (
            ["--history", "log.csv", "--wait", "1h", "--share", "2"],
            3,
            "a share of the jobs",
        ),
        (
            ["--run-hours", "0", "--runs", "1", "--run-gpus", "1"],
            3,
            "--run-hours cannot be 0",
        ),
    ],
)
def test_what_says_too_little_is_refused(
    words: list[str],
    code: int,
    said: str,
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(log.parent)
    assert run(["plan", "capacity", *words]) == code
    assert said in capsys.readouterr().err
