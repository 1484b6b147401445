"""Python's search for garbage that refers to itself, as rare as a head needs it.

A head keeps many rows and makes many more that count goes by, and nearly nothing that
goes in circles. At Python's own pace (700 new objects) a third of its time in B5 went
into the search.
"""

import gc
from typing import Final

# new objects, less those that are gone, before the young are searched
YOUNG: Final = 50_000
MIDDLE: Final = 20  # searches of the young before one of those that outlived it
OLD: Final = 20  # of those before one of all


def search_rarely() -> None:
    """Freeze the current objects, so that garbage collection never scans them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
