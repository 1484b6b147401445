"""Errors that stop a Ray program, and how a node reports one: it becomes the job's
reason."""

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
    """Error: the Ray cluster of the attempt cannot start or is lost, because of the job
    itself or for a reason that the job's program may have caused."""

    infra = False


class CannotStart(CannotRun):
    """Error: Ray itself does not start, before any part of the program runs. The user
    is not at fault."""

    infra = True


def refuse(why: str, own: Mapping[str, str], *, infra: bool) -> int:
    """Report in the log and to the shim why the program cannot run. Return the exit
    code."""
    print(f"corral: {why}", file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(FAILED))
    with suppress(OSError, KeyError):
        _tell_shim({"type": "refuse", "why": why, "infra": infra}, own["CORRAL_SOCKET"])
        time.sleep(HEARD_SECONDS)
    return FAILED


def _tell_shim(message: Mapping[str, object], path: str) -> None:
    """Send the message to the shim's socket in the attempt's folder, the parent of the
    working folder. The socket is reached through a descriptor of that folder, because
    `path` may be longer than a socket's path can be, and closed to the rank's user.
    Raises: OSError."""
    folder = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
        line.sendall(json.dumps(message).encode() + b"\n")
