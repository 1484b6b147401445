"""Files that the Python of a rank runs at its start, in the folder of an attempt."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

FOLDER: Final = "watch"
# PyTorch records its last collective operations if it is above 0
RECORDED_COLLECTIVES: Final = {"TORCH_FR_BUFFER_SIZE": "2000"}
HOOK_FILE: Final = "sitecustomize.py"
WARM_FILE: Final = "warm_start.py"
IMPORTS_FILE: Final = "imports.json"
WARM_VARIABLE: Final = "CORRAL_WARM_START"
_HOOKS: Final = Path(__file__).parent / "hook"


def lay_out_hook(attempt_folder: str) -> str | None:
    """Copy the file into the attempt's folder, where also ranks in images and with
    other accounts can read it. Return its folder; None if there is no room: the job
    runs without it."""
    folder = Path(attempt_folder) / FOLDER
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        shutil.copyfile(_HOOKS / HOOK_FILE, folder / HOOK_FILE)
        # the umask of the agent is narrower
        folder.chmod(0o755)
        (folder / HOOK_FILE).chmod(0o644)
        return str(folder)
    return None


def lay_out_warm_start(attempt_folder: str, imports: Sequence[str]) -> str:
    """Put the hook, the program of a warm interpreter and the names of the modules that
    it imports into the attempt's folder. Return the folder of these files. Raises:
    OSError."""
    if (hook := lay_out_hook(attempt_folder)) is None:
        raise OSError("the node has no room for the files of a warm interpreter")
    folder = Path(hook)
    shutil.copyfile(_HOOKS / WARM_FILE, folder / WARM_FILE)
    (folder / IMPORTS_FILE).write_text(json.dumps(list(imports)))
    for name in (WARM_FILE, IMPORTS_FILE):
        (folder / name).chmod(0o644)
    return hook


def with_hook(env: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return the environment in which each Python imports the file at its start, and
    PyTorch records its last collective operations."""
    path = os.pathsep.join(filter(None, [folder, env.get("PYTHONPATH", "")]))
    return {**RECORDED_COLLECTIVES, **env, "PYTHONPATH": path}
