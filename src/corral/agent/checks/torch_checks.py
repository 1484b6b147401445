"""GPU checks by PyTorch, each in a separate process, so that one which hangs in a
driver can be killed."""

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
    "PyTorch was built without CUDA or ROCm on this node; install a build for its GPUs"
)
MISSING: Final = (
    "PyTorch is not installed in Corral's Python on this node; "
    "run there: pip install 'corral[train]'"
)


class NoProof(Exception):
    """Error: a check process has given no result; the message has the reason. `hangs`:
    it was killed because it did not end."""

    def __init__(self, why: str, *, hangs: bool = False) -> None:
        super().__init__(why)
        self.hangs = hangs


def has_torch() -> bool:
    return find_spec("torch") is not None


def has_gpu_build() -> bool:
    """Return whether PyTorch was built for GPUs, according to its version file: an
    import of PyTorch would cost the agent memory. Without a version file, the answer is
    True."""
    module_spec = find_spec("torch")
    if module_spec is None or module_spec.origin is None:
        return False
    try:
        text = Path(module_spec.origin).with_name("version.py").read_text()
    except OSError:
        return True
    return BUILT_FOR.search(text) is not None


def visible(gpus: Sequence[Gpu]) -> Mapping[str, str]:
    """Return this process's environment, changed so that only these GPUs are visible,
    in this order."""
    uuids = [gpu.uuid for gpu in gpus]
    if uuids and all(uuid.startswith("GPU-") for uuid in uuids):
        return {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(uuids)}
    return dict(os.environ)


def proven(
    words: Sequence[str], seconds: float, env: Mapping[str, str] | None = None
) -> list[Mapping[str, Any]]:
    """Run the command `words` as a check process, and return its output, one message
    for each line.

    Raises: NoProof when it gives no result.
    """
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
    """Wait for the check process to end, and return the JSON messages that it printed,
    one for each line.

    Raises: NoProof when it does not answer in time or fails.
    """
    try:
        stdout, trouble = process.communicate(timeout=seconds + START_SECONDS)
    except subprocess.TimeoutExpired:
        ended(process)
        reason = f"no answer of the check process in {seconds + START_SECONDS:.0f} s"
        raise NoProof(reason, hangs=True) from None
    if process.returncode != 0:
        error_lines = trouble.decode(errors="replace").strip().splitlines()[-1:] or [
            "the check process failed without an error message"
        ]
        raise NoProof(error_lines[0][:300])
    return [json.loads(line) for line in stdout.splitlines() if line.startswith(b"{")]


def ended(process: "subprocess.Popen[bytes]") -> None:
    """Kill the check process if it still runs. A process that hangs in a driver is left
    behind."""
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=END_SECONDS)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
