"""Moment after which a file of a work folder counts as written by its attempt."""

import json
import os
import time
from contextlib import suppress
from typing import Final

RECORD: Final = "work.json"  # as corral.agent.outputs.record has it, which a shim does not import
TICK_SECONDS: Final = 0.0005
_COARSE: Final = 5  # CLOCK_REALTIME_COARSE, by which the kernel stamps files


def record_begin(folder: str, work: str) -> None:
    """Write the moment down, before the first process of the attempt.

    The clock of files ticks. All of the workdir is older than the next tick, and whatever the
    attempt changes is not. An empty folder needs no moment: all in it is written by the attempt.
    """
    with suppress(OSError):  # without a record, all counts as written
        since = 0
        with os.scandir(work) as entries:
            has_files = next(entries, None) is not None
        if has_files:
            before = time.clock_gettime_ns(_COARSE)
            while (since := time.clock_gettime_ns(_COARSE)) == before:
                time.sleep(TICK_SECONDS)
        with open(os.path.join(folder, RECORD), "w") as file:
            json.dump({"since_ns": since}, file)
