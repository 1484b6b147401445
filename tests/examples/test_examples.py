"""Every example runs, on small sizes and without a cluster."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from corral.wire.spec_reader import read_specs

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.train


def said(words: Sequence[str], here: Path) -> str:
    """What it printed. It runs in `here`, as nobody's rank."""
    known = {
        name: one for name, one in os.environ.items() if not name.startswith("CORRAL_")
    }
    done = subprocess.run(
        [sys.executable, *words],
        cwd=here,
        env=known | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_loss_of_plain_ddp_falls_under_torchrun(tmp_path: Path) -> None:
    script = str(EXAMPLES / "plain_ddp" / "train.py")
    words = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        script,
    ]
    text = said(words, tmp_path)
    losses = [
        float(one)
        for one in re.findall(r"^step \d+ loss ([\d.]+)$", text, re.MULTILINE)
    ]
    assert losses[-1] < losses[0] / 5
    assert "rank 0 of 2 is done" in text


def test_tiny_gpt_trains_alone(tmp_path: Path) -> None:
    script = str(EXAMPLES / "tiny_gpt" / "train.py")
    result = tmp_path / "result.json"
    said(
        [script, "--steps", "3", "--batch-size", "2", "--result", str(result)], tmp_path
    )
    assert "loss" in str(json.loads(result.read_text()))


@pytest.mark.parametrize(
    "spec", sorted(EXAMPLES.glob("*/spec.yaml")), ids=lambda one: one.parent.name
)
def test_its_spec_can_be_read(spec: Path) -> None:
    assert read_specs(spec)
