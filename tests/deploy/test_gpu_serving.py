"""The stage of `make gpu` that serves: how times are compared with the plan, what it asks
Corral for, and that it says why it does not run."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corral.domain.lending import ParkBy
from corral.plan.serve.plan import ServeRequest, plan_serve
from corral.plan.serve.report import report
from corral.wire.service_document import read_service
from corral.wire.yaml_document import documents_of

GPU = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(GPU))
    return runpy.run_path(str(GPU / "serving_rows.py"))


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(GPU))
    return runpy.run_path(str(GPU / "serving.py"))


def planned(**milliseconds: float) -> dict[str, dict[str, float]]:
    return {name.replace("_", " "): {"value": ms} for name, ms in milliseconds.items()}


def streams(rows: dict[str, Any], ttft: float, itl: float) -> list[Any]:
    """Streams of five tokens with these times in milliseconds; one of ten is slow."""
    made = []
    for number in range(20):
        factor = 10.0 if number % 10 == 9 else 1.0
        first = number + factor * ttft / 1000.0
        events = tuple(first + place * itl / 1000.0 for place in range(5))
        made.append(rows["StreamTimes"](sent=float(number), events=events))
    return made


@pytest.mark.parametrize(
    ("ttft", "itl", "verdicts"),
    [
        (20.0, 5.0, ["ok", "ok", "ok", "ok"]),
        (23.9, 4.1, ["ok", "ok", "ok", "ok"]),
        (24.2, 3.9, ["differs", "differs", "differs", "differs"]),
        (15.9, 6.1, ["differs", "differs", "differs", "differs"]),
    ],
)
def test_times_within_a_fifth_of_the_plan_are_as_planned(
    rows: dict[str, Any], ttft: float, itl: float, verdicts: list[str]
) -> None:
    plan = planned(TTFT_p50=20.0, TTFT_p90=200.0, ITL_p50=5.0, ITL_p90=5.0)
    made = rows["time_rows"](plan, streams(rows, ttft, itl))
    assert [row.what for row in made] == ["TTFT p50", "TTFT p90", "ITL p50", "ITL p90"]
    assert [row.verdict for row in made] == verdicts
    assert made[0].expected == "20 ms +- 20 %"
    assert made[0].seen.startswith(f"{ttft:.3g} ms (")


def test_only_events_with_a_choice_are_tokens(rows: dict[str, Any]) -> None:
    is_token = rows["is_token"]
    assert is_token(b'data: {"choices": [{"text": "a"}]}\n')
    for line in (b"\n", b"data: [DONE]\n", b'data: {"choices": []}\n', b": ping\n"):
        assert not is_token(line)
    with pytest.raises(ValueError, match="replica_lost"):
        is_token(b'data: {"error": {"code": "replica_lost"}}\n')


def test_arrivals_have_their_rate_and_are_the_same_each_time(
    rows: dict[str, Any],
) -> None:
    moments = rows["arrivals"](2.0, 2000)
    assert moments == rows["arrivals"](2.0, 2000) == sorted(moments)
    assert moments[-1] == pytest.approx(1000.0, rel=0.1)


def test_a_sleep_must_release_the_memory_and_end_soon(rows: dict[str, Any]) -> None:
    def verdicts(asleep: float, wake: float) -> list[str]:
        made = rows["sleep_rows"](100e9, asleep, wake, 10.0)
        return [row.verdict for row in made]

    assert verdicts(24e9, 9.9) == ["ok", "ok"]
    assert verdicts(26e9, 10.1) == ["differs", "differs"]


def test_without_vllm_the_stage_says_what_to_install(
    serving: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (row,) = serving["serving"](None)
    assert row.verdict == "not run"
    assert "pip install vllm" in row.seen


def test_the_stage_is_among_those_of_the_page() -> None:
    code = "import run; print([name for name, _ in run.ALL_STAGES])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=GPU,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Serving beside the plan" in done.stdout


def test_its_service_sleeps_by_its_engine_and_the_plan_has_its_times(
    serving: dict[str, Any], rows: dict[str, Any]
) -> None:
    text = serving["SERVICE"].format(name="gpu", model="/data/model", path="/bin")
    (document,) = documents_of(text, source="gpu.yaml")
    spec = read_service(document).spec
    assert (spec.park, spec.sleeping, spec.max_replicas) == (ParkBy.ENGINE, 1, 1)
    request = ServeRequest(
        model=json.dumps(CONFIG),
        qps=serving["RATE"],
        input=serving["INPUT_TOKENS"],
        output=serving["OUTPUT_TOKENS"],
        gpu="h200",
    )
    answers = {
        one.name: {"value": one.value} for one in report(plan_serve(request)).answers
    }
    made = rows["time_rows"](answers, streams(rows, 1.0, 1.0))
    assert [row.what for row in made] == ["TTFT p50", "TTFT p90", "ITL p50", "ITL p90"]
