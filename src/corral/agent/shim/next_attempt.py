"""Reuse of a shim: it waits for its next attempt, and keeps nothing of the previous
one.

A fork of the launcher copies most of an interpreter's memory, which is two thirds of
the node's cost of a short job. A shim still serves one attempt at a time.
"""

import ctypes
import gc
import os
import signal
import socket
from contextlib import suppress
from typing import Final

from corral.agent.containment import CGROUP
from corral.agent.shim.attempt_life import AttemptLife

IDLE: Final = b"i"  # from a shim to the launcher: it waits
NAME: Final = b"corral-shim"  # as ps shows it
IDLE_NAME: Final = b"corral-idle"
_PR_SET_NAME: Final = 15
_FIRST: Final = 3  # descriptor that is not standard
_MOST: Final = 65536
_libc: Final = ctypes.CDLL(None, use_errno=True)


def leaves_nothing(life: AttemptLife) -> bool:
    """Return whether the attempt has left nothing in the shim itself, such as a
    namespace or an image, so that it can be used again."""
    spec = life.spec
    return life.containment_kind == CGROUP and spec.apart is None and spec.image is None


def next_attempt(launcher: socket.socket) -> socket.socket | None:
    """Report to the launcher that this shim is idle, and wait for the next attempt.
    Return the socket of its agent; None when the launcher ends or has no further
    attempt."""
    _close_descriptors(launcher.fileno())
    with suppress(OSError):
        launcher.send(IDLE)
        call_myself(IDLE_NAME)
        _, received, _, _ = socket.recv_fds(launcher, 16, 1)
        if received:
            call_myself(NAME)
            return socket.socket(fileno=received[0])
    return None


def call_myself(name: bytes) -> None:
    _libc.prctl(_PR_SET_NAME, name, 0, 0, 0)


def _close_descriptors(kept: int) -> None:
    """Close every descriptor except `kept`, which connects to the launcher. Objects of
    the last attempt are freed first: an object that is freed later would close a
    descriptor of the next attempt."""
    signal.set_wakeup_fd(-1)
    gc.collect()  # what the launcher froze is not looked at
    gc.freeze()  # nor, next time, what is left: caches and modules
    os.closerange(_FIRST, kept)
    os.closerange(kept + 1, _MOST)
