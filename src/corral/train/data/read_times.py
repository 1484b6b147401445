"""Time that reading and decoding of samples takes, over all workers of a loader."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.utils.data import get_worker_info

SLOTS: Final = 64  # each worker adds to a slot of its own
READ: Final = 0
DECODE: Final = 1


class ReadTimes:
    """Seconds of reading and decoding, in memory that the workers of a DataLoader
    share."""

    def __init__(self) -> None:
        seconds: Any = torch.zeros(SLOTS, 2, dtype=torch.float64)
        self._seconds: torch.Tensor = seconds.share_memory_()

    @contextmanager
    def measure(self, kind: int) -> Iterator[None]:
        """Add the time of the context to READ or DECODE."""
        began = time.monotonic()
        try:
            yield
        finally:
            worker = get_worker_info()
            slot = 0 if worker is None else 1 + worker.id % (SLOTS - 1)
            self._seconds[slot, kind] += time.monotonic() - began

    def totals(self) -> tuple[float, float]:
        """Return the seconds of reading and of decoding so far, of all workers."""
        read_seconds, decode_seconds = self._seconds.sum(0).tolist()
        return read_seconds, decode_seconds
