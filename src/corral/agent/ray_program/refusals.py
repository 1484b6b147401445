"""Reasons why a Ray program does not run, written into the job's reason."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

FAILED: Final = 1
# time for the shim, which has the report, to end this process
HEARD_SECONDS: Final = 5.0


class CannotRun(Exception):
    """The Ray cluster of the attempt does not come about, or is lost: by what the job
    is, or where its program could have done it."""

    infra = False


class CannotStart(CannotRun):
    """Ray itself does not start, before anything of the program runs: no fault of its
    user's."""

    infra = True


def refuse(why: str, own: Mapping[str, str], *, infra: bool) -> int:
    """Say it in the log and to the shim. The exit code."""
    print(f"corral: {why}", file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(FAILED))
    with suppress(OSError, KeyError):
        _tell_shim({"type": "refuse", "why": why, "infra": infra}, own["CORRAL_SOCKET"])
        time.sleep(HEARD_SECONDS)
    return FAILED


def _tell_shim(message: Mapping[str, object], path: str) -> None:
    """It serves in the attempt's folder, which is that above. Its path may be longer
    than that of a socket can be, and closed to the rank's user. Raises: OSError."""
    folder = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
        line.sendall(json.dumps(message).encode() + b"\n")
