"""Reports of the planner as people read them, whole. A change of a number is reviewed
here."""

from pathlib import Path

import pytest

from tests.golden.transcript import check, transcript

PLANS = {
    "plan_model": "plan model llama-3.1-70b --gpu h200",
    "plan_train": "plan train llama-3.1-70b --gpus 64 --gpu h100 --tokens 1e12",
    "plan_serve": "plan serve llama-3.1-8b --qps 20 --input 1000 --output 200 "
    "--ttft-p90 500 --itl-p90 30",
    "plan_cluster": "plan cluster --gpus 1024 --gpu h100",
    "plan_cost": "plan cost --gpus 16 --utilisation 0.6",
    "plan_reliability": "plan reliability llama-3.1-405b --gpus 16384 --days 54",
    "plan_capacity": "plan capacity --run-hours 20 --runs 30 --run-gpus 16",
}


@pytest.mark.parametrize("name", PLANS)
def test_a_report_reads_as_before(
    name: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for variable in (
        "CORRAL_DIR",
        "CORRAL_URL",
        "CORRAL_TOKEN",
        "NO_COLOR",
        "FORCE_COLOR",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "240")  # as wide as in a file: nothing is folded
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.chdir(tmp_path)
    update = bool(request.config.getoption("--update", default=False))
    check(name, transcript(PLANS[name]), update=update)
