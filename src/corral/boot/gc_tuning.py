"""Settings of Python's garbage collector, which runs as rarely as a head can afford.

A head keeps many rows, and creates many more that reference counting frees; it creates
hardly any reference cycles. At Python's default rate (every 700 new objects), the
collector took a third of the head's time in benchmark B5.
"""

import gc
from typing import Final

# new objects, less those that are gone, before the young are searched
YOUNG: Final = 50_000
MIDDLE: Final = 20  # searches of the young before one of those that outlived it
OLD: Final = 20  # of those before one of all


def search_rarely() -> None:
    """Freeze the current objects, so that garbage collection never scans them again,
    and set it to run rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
