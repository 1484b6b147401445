"""Every example runs, on small sizes and without a cluster."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from corral.wire.service_document import read_service
from corral.wire.spec_reader import read_documents, read_specs

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


@pytest.mark.parametrize(
    "file", sorted(EXAMPLES.glob("*/service.yaml")), ids=lambda one: one.parent.name
)
def test_its_service_can_be_read(file: Path) -> None:
    (document,) = read_documents(file)
    assert read_service(document).spec.name in read_service(document).spec.models


def test_the_weights_of_serve_tiny_can_be_served(tmp_path: Path) -> None:
    from corral.serve.tiny_model import load_predictor

    script = str(EXAMPLES / "serve_tiny" / "make_weights.py")
    said([script, "--steps", "2", "--out", "tiny.pt"], tmp_path)
    assert load_predictor(tmp_path / "tiny.pt").next_byte(b"def ", 0.0) < 128
