"""Program that works on the files of saves: `python -m corral.train.save.file_program`.
The command line runs it, because it may not load torch itself.

It reads one JSON document from its standard input, and writes the result as one JSON
document to its standard output: {"error": {"code", "message", "hint"}} for a refusal.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from corral.domain.errors import CorralError
from corral.domain.store_url import parse_store_url
from corral.train.save.comparison import compare
from corral.train.save.export import export
from corral.train.save.manifest import Manifest
from corral.train.save.object_restore import (
    PREFIX,
    StoredSave,
    fetch_configs,
    fetch_whole,
)
from corral.train.save.object_store import remove_saves
from corral.train.save.saved_tensors import SavedTensors
from corral.train.save.verify import verify
from corral.train.save_path import parse_save_path


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Verify the saves of the request, and return the result of its `action`: verify,
    compare, export or remove.

    Raises: Broken, CannotExport, OSError, StoreRefused, StoreUnavailable.
    """
    saves = request["saves"]
    if request["action"] == "remove":
        remove_saves([parse_store_url(save["path"]) for save in saves])
        return {}
    with ExitStack() as stack:
        folders = [_folder_of(save, request["action"], stack) for save in saves]
        return _process(request, folders)


def _process(request: Mapping[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    saves = request["saves"]
    manifests = [
        _verify(save, folder) for save, folder in zip(saves, folders, strict=True)
    ]
    if request["action"] == "compare":
        with SavedTensors(folders[0]) as first, SavedTensors(folders[1]) as second:
            return compare(first, second, (manifests[0], manifests[1]))
    if request["action"] == "export":
        with SavedTensors(folders[0]) as save:
            paths = export(save, folders[0], Path(request["target"]), request["to"])
        return {"files": [str(path) for path in paths]}
    return {"files": len(manifests[0].files), "size_bytes": manifests[0].size_bytes}


def _folder_of(save: Mapping[str, Any], action: str, stack: ExitStack) -> Path:
    """Return the directory of the save. A save in an object store is fetched into one
    that lasts as long as the stack.

    Raises: Broken, OSError, StoreRefused, StoreUnavailable.
    """
    place = parse_save_path(save["path"])
    if isinstance(place, Path):
        return place
    top = Path(stack.enter_context(TemporaryDirectory(prefix=PREFIX)))
    folder = top / "attempt" / "step"
    stored = StoredSave(
        url=place,
        attempt=save["attempt"],
        step=save["step"],
        manifest_sha256=save["manifest_sha256"] or None,
    )
    fetch_whole(stored, folder)
    if action == "export":
        fetch_configs(place, folder)
    return folder


def _verify(save: Mapping[str, Any], folder: Path) -> Manifest:
    return verify(
        folder,
        attempt=save["attempt"],
        step=save["step"],
        manifest_sha256=save["manifest_sha256"] or None,
    )


def main() -> None:
    try:
        answer = run(json.load(sys.stdin))
    except CorralError as error:
        details = {"code": error.code, "message": error.message, "hint": error.hint}
        answer = {"error": details}
    except OSError as error:
        message = f"{error.filename or 'a file'}: {error.strerror or error}"
        answer = {"error": {"code": "files", "message": message, "hint": ""}}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
