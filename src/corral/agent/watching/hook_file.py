"""The file that counts the optimizer steps of a program, in the folder of an attempt."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

FOLDER: Final = "watch"
# PyTorch records its last collective operations if it is above 0
RECORDED_COLLECTIVES: Final = {"TORCH_FR_BUFFER_SIZE": "2000"}
_HOOK: Final = Path(__file__).parent / "hook" / "sitecustomize.py"


def lay_out_hook(attempt_folder: str) -> str | None:
    """Copy the file into the attempt's folder, where also ranks in images and with
    other accounts can read it. Return its folder; None if there is no room: the job
    runs without it."""
    folder = Path(attempt_folder) / FOLDER
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        shutil.copyfile(_HOOK, folder / _HOOK.name)
        # the umask of the agent is narrower
        folder.chmod(0o755)
        (folder / _HOOK.name).chmod(0o644)
        return str(folder)
    return None


def with_hook(env: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return the environment in which each Python imports the file at its start, and
    PyTorch records its last collective operations."""
    path = os.pathsep.join(filter(None, [folder, env.get("PYTHONPATH", "")]))
    return {**RECORDED_COLLECTIVES, **env, "PYTHONPATH": path}
