"""`make gpu`: readings are compared as they should be, and without a GPU nothing is
claimed."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GPU = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"


@pytest.fixture
def smi() -> dict[str, Any]:
    return runpy.run_path(str(GPU / "smi.py"))


def printed(smi: dict[str, Any], **more: str) -> dict[str, str]:
    """What nvidia-smi prints of a GPU: everything is [N/A] but what is given."""
    words = [more.get(name.replace(".", "_"), "[N/A]") for name in smi["QUERY"]]
    (row,) = smi["read_table"](", ".join(words) + "\n")
    return dict(row)


def test_readings_differ_beyond_what_two_moments_explain(smi: dict[str, Any]) -> None:
    row = printed(
        smi,
        uuid="GPU-1",
        power_draw="350.2",
        temperature_gpu="60",
        utilization_gpu="98",
    )
    sample = {"uuid": "GPU-1", "power_watts": 361.0, "temperature_celsius": 80.0}
    found = {one.what: one.verdict for one in smi["compare"](row, [sample])}
    assert (found["power.draw"], found["temperature.gpu"]) == ("ok", "differs")
    assert found["utilization.gpu"] == "differs"  # the agent has no reading
    assert found["clocks.mem"] == "ok"  # neither has one


def test_a_gpu_that_the_agent_does_not_see_is_a_difference(smi: dict[str, Any]) -> None:
    (row,) = smi["compare"](printed(smi, uuid="GPU-1"), [{"uuid": "GPU-2"}])
    assert (row.verdict, row.expected) == ("differs", "GPU-1")


def test_without_a_gpu_nothing_is_measured_and_it_is_said(tmp_path: Path) -> None:
    env = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(GPU / "run.py")], env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "no NVIDIA GPU" in done.stderr
