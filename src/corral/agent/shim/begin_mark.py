"""Moment after which a file of a work folder counts as written by its attempt."""

import json
import os
import time
from contextlib import suppress
from typing import Final

RECORD: Final = (
    "work.json"  # as corral.agent.outputs.work_record has it, which a shim does not import
)
TICK_SECONDS: Final = 0.0005


def record_begin(folder: str, work: str) -> None:
    """Write the moment down, before the first process of the attempt.

    The clock of files ticks, and a file that was looked at gets finer stamps, so the moment is
    read off a file beside the folder: all of the workdir is older than its second stamp, and
    whatever the attempt changes is not. Without a record, all counts as written: an empty folder
    needs none.
    """
    with suppress(OSError):
        if os.listdir(work):
            with open(os.path.join(folder, RECORD), "w") as file:
                json.dump({"since_ns": _next_stamp(file.fileno())}, file)


def _next_stamp(file: int) -> int:
    """Return a change time of the open file that is later than that of any change before."""
    before = os.fstat(file).st_ctime_ns
    while (stamp := os.fstat(file).st_ctime_ns) == before:
        time.sleep(TICK_SECONDS)
        os.utime(file)
    return stamp
