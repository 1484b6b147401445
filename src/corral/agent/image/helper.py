"""The helper that reads an image for one account: `python -m corral.agent.image.helper
REQUEST`.

It runs with a low priority. Where the agent is root, the helper gives up root before it
opens the image, so that it can open only what the job's user may open. The folder to
fill is passed as an open descriptor, since the account cannot reach it by its path. The
helper answers with one line of JSON.
"""

import json
import os
import resource
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from corral.agent.bounded_tar import (
    CHUNK_BYTES,
    BadArchive,
    UnpackLimits,
    unpack_members,
)
from corral.agent.image import layers
from corral.agent.image.tree import ImageTree
from corral.agent.low_priority import take_low_priority

MODULE: Final = "corral.agent.image.helper"
PADDING_READS: Final = 4
MEMORY_BYTES: Final = 4 * 1024**3


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Execute the request and return the answer: describe an archive, unpack it, or
    unpack a flat tar from stdin.

    Raises: BadArchive, OSError when this fails.
    """
    path = request.get("path")
    root = request.get("into")
    if path is None:
        assert root is not None
        _unpack_flat(root, UnpackLimits(**request["bounds"]))
        return {}
    with layers.opened(Path(path)) as layout:
        image = layers.image_in(layout, request["tag"])
        if root is not None:
            layers.unpack_layers(layout, image, root, UnpackLimits(**request["bounds"]))
    return asdict(image)


def _unpack_flat(root: int, bounds: UnpackLimits) -> None:
    tree = ImageTree(root, bounds, layered=False)
    try:
        unpack_members(sys.stdin.buffer, bounds, tree.place, disk=root)
    finally:
        tree.close()
    # who writes the stream pads it, and must not fail at that
    for _ in range(PADDING_READS):
        if not sys.stdin.buffer.read(CHUNK_BYTES):
            break


def _switch_account(account: dict[str, Any] | None) -> None:
    if account is None:
        return
    os.setgroups(account["groups"])
    os.setgid(account["groups"][0])
    os.setuid(account["uid"])


def main(words: list[str]) -> None:
    request = json.loads(words[0])
    take_low_priority()
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    _switch_account(request["account"])
    try:
        reply = answer(request)
    except BadArchive as wrong:
        reply = {"wrong": f"{wrong}"}
    except MemoryError:
        reply = {"wrong": f"reading it requires over {MEMORY_BYTES} bytes of memory"}
    except OSError as trouble:
        reply = {"trouble": f"{trouble}", "errno": trouble.errno}
    with suppress(BrokenPipeError):
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
