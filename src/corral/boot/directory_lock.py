"""The lock of a cluster's directory. The process that holds the lock is the only head
of the directory."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from corral.boot.clock import SystemClock
from corral.boot.settings import ClusterDir
from corral.domain.errors import Conflict

LOCK_SECONDS: Final = 2.0


@contextmanager
def sole_head(place: ClusterDir) -> Iterator[None]:
    """Hold the cluster's lock. The kernel releases it when the process ends.

    Raises: Conflict if another head holds the lock.
    """
    clock = SystemClock()
    give_up_at = clock.monotonic() + LOCK_SECONDS
    with place.head_lock.open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock.monotonic() > give_up_at:
                    raise Conflict(
                        f"a head already runs in {place.root}",
                        hint=f"see its state: corral status --dir {place.root}",
                    ) from None
                time.sleep(0.02)  # who only looks whether a head runs lets go at once
        yield
