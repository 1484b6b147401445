"""`corral plan serve --replay`: its report, its comparison, and its refusals."""

import json
from pathlib import Path

import pytest

from corral.cli.main import run

SERVE = ["plan", "serve", "llama-3.1-8b", "--gpu", "h100-sxm"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    rows = [
        {
            "timestamp": 300 * number,
            "input_length": 1500 + 20 * (number % 7),
            "output_length": 60,
            "hash_ids": [0, number % 5 + 1],
        }
        for number in range(400)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_trace_is_replayed_and_reported(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--replay", str(trace), "--replicas", "1..4", "--scale", "queue:2"]
    assert run([*SERVE, *words, "--ttft-p90", "200"]) == 0
    printed = capsys.readouterr().out
    assert "a trace of 400 requests in 2 min" in printed
    assert "scale: {queue: 2}" in printed
    assert "over the TTFT target" in printed
    assert "\u00b1 43 %" in printed


def test_two_rules_or_two_types_of_gpu_are_compared(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for compared in ("rps: 1", "a100-sxm-80gb"):
        words = ["--replay", str(trace), "--compare", compared, "--json"]
        assert run([*SERVE, *words]) == 0
        first, second = json.loads(capsys.readouterr().out)["data"]["replays"]
        assert first["scale"] == "{queue: 4}"
        differs = {name for name in ("gpu", "scale") if first[name] != second[name]}
        assert differs == ({"scale"} if ":" in compared else {"gpu"})


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("--qps 1 --input 100", "plan serve requires --output", "--replay FILE"),
        (
            "--qps 1 --input 100 --output 9 --scale queue:4",
            "--scale requires a trace",
            "--replay FILE",
        ),
        ("--replay TRACE --qps 3", "cannot be combined with --replay", "leave them"),
        (
            "--replay TRACE --scale load:4",
            "there is no such field",
            "use one of: queue",
        ),
        ("--replay TRACE --scale queue:4,rps:2", "queue is given, too", "remove queue"),
        ("--replay TRACE --compare h1000", "there is no GPU", "corral plan catalog"),
        ("--replay TRACE --replicas 0", "answers no request", "0..8"),
        ("--replay TRACE --replicas 8..1", "is not a valid number or range", "1..4"),
        ("--replay TRACE --shared 100", "hash_ids", "leave out --shared"),
        ("--replay /none", "there is no file /none", "timestamp (ms)"),
    ],
)
def test_what_does_not_fit_is_refused(
    words: str,
    message: str,
    hint: str,
    trace: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = words.replace("TRACE", str(trace)).split()
    assert run([*SERVE, *given]) != 0
    printed = " ".join(capsys.readouterr().err.split())
    assert message in printed
    assert hint in printed
