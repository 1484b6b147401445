"""Program that works on the files of saves: `python -m corral.train.save.file_program`.
The command line runs it, because it may not load torch itself.

It reads one JSON document from its standard input, and writes the result as one JSON
document to its standard output: {"error": {"code", "message", "hint"}} for a refusal.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral.domain.errors import CorralError
from corral.train.save.comparison import compare
from corral.train.save.export import export
from corral.train.save.manifest import Manifest
from corral.train.save.saved_tensors import SavedTensors
from corral.train.save.verify import verify


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Verify the saves of the request, and return the result of its `action`: verify,
    compare or export.

    Raises: Broken, CannotExport, OSError.
    """
    saves = request["saves"]
    manifests = [_verify(save) for save in saves]
    folders = [Path(save["path"]) for save in saves]
    if request["action"] == "compare":
        with SavedTensors(folders[0]) as first, SavedTensors(folders[1]) as second:
            return compare(first, second, (manifests[0], manifests[1]))
    if request["action"] == "export":
        with SavedTensors(folders[0]) as save:
            paths = export(save, folders[0], Path(request["target"]), request["to"])
        return {"files": [str(path) for path in paths]}
    return {"files": len(manifests[0].files), "size_bytes": manifests[0].size_bytes}


def _verify(save: Mapping[str, Any]) -> Manifest:
    return verify(
        Path(save["path"]),
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
