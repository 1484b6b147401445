"""Cap on the bytes a second that saves write."""

import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Final

BURST_SECONDS: Final = 0.5  # of the rate may be used at once


class BandwidthCap:
    """Cap by a token bucket: bytes may be written at a constant rate. Threads share it."""

    def __init__(
        self,
        bytes_per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = clock() - BURST_SECONDS  # when the tokens in use are paid for

    def take(self, count: int) -> None:
        """Wait until `count` bytes may be written."""
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now - BURST_SECONDS) + count / self._rate
            wait = self._free_at - now
        if wait > 0:
            self._sleep(wait)


@cache
def bucket_of(bytes_per_second: float) -> BandwidthCap:
    """Return the bucket of this process for this rate."""
    return BandwidthCap(bytes_per_second)
