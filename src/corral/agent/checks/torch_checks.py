"""Proofs by PyTorch, each a process of its own: what hangs in a driver is killed."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from corral.domain.resources import Gpu

# that PyTorch and a driver may take beyond the computing itself
START_SECONDS: Final = 120.0
END_SECONDS: Final = 2.0
COMMAND: Final = (sys.executable, "-m", "corral.train.device_checks")
# in torch/version.py
BUILT_FOR: Final = re.compile(r"^(?:cuda|hip)\b.*= *['\"]", re.MULTILINE)
NO_CUDA: Final = (
    "PyTorch was built without CUDA or ROCm on this node: install a build for its GPUs"
)
MISSING: Final = (
    "PyTorch is not installed for Corral on this node: pip install 'corral[train]'"
)


class NoProof(Exception):
    """It has given no answer; the message says why. `hangs`: it was killed."""

    def __init__(self, why: str, *, hangs: bool = False) -> None:
        super().__init__(why)
        self.hangs = hangs


def has_torch() -> bool:
    return find_spec("torch") is not None


def has_gpu_build() -> bool:
    """Whether PyTorch was built for GPUs, by what it writes down of itself: to import
    it here would cost an agent its memory. Where nothing is written it is taken to
    be."""
    module_spec = find_spec("torch")
    if module_spec is None or module_spec.origin is None:
        return False
    try:
        text = Path(module_spec.origin).with_name("version.py").read_text()
    except OSError:
        return True
    return BUILT_FOR.search(text) is not None


def visible(gpus: Sequence[Gpu]) -> Mapping[str, str]:
    """An environment in which just these GPUs are there, in this order."""
    uuids = [gpu.uuid for gpu in gpus]
    if uuids and all(uuid.startswith("GPU-") for uuid in uuids):
        return {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(uuids)}
    return dict(os.environ)


def proven(
    words: Sequence[str], seconds: float, env: Mapping[str, str] | None = None
) -> list[Mapping[str, Any]]:
    """Return the output of the check process, one message for each line. Raises:
    NoProof."""
    process = begun(words, env)
    return answers(process, seconds)


def begun(
    words: Sequence[str], env: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*COMMAND, *words],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def answers(
    process: "subprocess.Popen[bytes]", seconds: float
) -> list[Mapping[str, Any]]:
    """Raises: NoProof."""
    try:
        stdout, trouble = process.communicate(timeout=seconds + START_SECONDS)
    except subprocess.TimeoutExpired:
        ended(process)
        reason = f"no answer in {seconds + START_SECONDS:.0f} s"
        raise NoProof(reason, hangs=True) from None
    if process.returncode != 0:
        error_lines = trouble.decode(errors="replace").strip().splitlines()[-1:] or [
            "it says nothing"
        ]
        raise NoProof(error_lines[0][:300])
    return [json.loads(line) for line in stdout.splitlines() if line.startswith(b"{")]


def ended(process: "subprocess.Popen[bytes]") -> None:
    """Kill it, if it lives. One that hangs in a driver is left behind."""
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=END_SECONDS)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
