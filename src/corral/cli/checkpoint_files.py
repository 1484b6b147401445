"""Files of checkpoints as this machine sees them. Programs of the training library read
them in a process of their own, because the command line does not load torch."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from corral.domain.errors import CorralError, Refusal, Unsupported
from corral.domain.store_url import is_store_url

if TYPE_CHECKING:
    from corral.wire import api

PROGRAM: Final = "corral.train.save.file_program"
MANIFEST: Final = "manifest.json"


class FilesElsewhere(Refusal):
    """The files of a checkpoint cannot be read on this machine."""

    code = "files_elsewhere"


class FilesRefused(Refusal):
    """The files of a checkpoint do not verify, or cannot be processed. The code is that
    of the program that read them."""

    code = "files"

    def __init__(self, message: str, *, code: str = "files", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code  # type: ignore[misc]


def process_files(
    saves: "Sequence[api.CheckpointView]", action: str, **options: str
) -> Mapping[str, Any]:
    """Verify the files of the checkpoints, process them, and return the result.

    Raises: FilesElsewhere, FilesRefused, Unsupported without torch.
    """
    for save in saves:
        _check_here(save)
    if find_spec("torch") is None:
        raise Unsupported(
            "reading the tensors of a checkpoint needs PyTorch, which is not installed here",
            hint="run: pip install 'corral[train]'",
        )
    request = {
        "action": action,
        "saves": [
            {
                "path": save.path,
                "attempt": save.attempt,
                "step": save.step,
                "manifest_sha256": save.manifest_sha256,
            }
            for save in saves
        ],
        **options,
    }
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer: Mapping[str, Any] = json.loads(done.stdout)
    except ValueError:
        last_line = (done.stderr.strip().splitlines() or ["no output"])[-1]
        message = f"the files cannot be read (exit code {done.returncode}): {last_line}"
        raise FilesRefused(message) from None
    if "error" in answer:
        raise FilesRefused(**answer["error"])
    return answer


def delete_files(save: "api.CheckpointView") -> bool:
    """Delete the files of a removed checkpoint, and return whether they are gone. Files
    that this machine does not see, or that belong to another save, are left alone."""
    if is_store_url(save.path):
        try:
            process_files([save], "remove")
        except CorralError:  # the caller says that they are there still
            return False
        return True
    folder = Path(save.path)
    if not folder.is_absolute() or not _is_same(folder, save.manifest_sha256):
        return False
    doomed = folder.with_name(f"{folder.name}.partial")
    with suppress(OSError):  # renamed first: what is half removed is no save
        folder.rename(doomed)
        shutil.rmtree(doomed)
        return True
    return False


def _is_same(folder: Path, manifest_sha256: str) -> bool:
    try:
        manifest = (folder / MANIFEST).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(manifest).hexdigest() == manifest_sha256


def _check_here(save: "api.CheckpointView") -> None:
    if is_store_url(save.path):  # the program says what it does not see
        return
    try:
        (Path(save.path) / MANIFEST).stat()
    except OSError as error:
        raise FilesElsewhere(
            f"the files of step {save.step} cannot be read on this machine: {save.path}: "
            f"{error.strerror}",
            hint="run the command on a node of the job, or on a machine that mounts this path",
        ) from error
