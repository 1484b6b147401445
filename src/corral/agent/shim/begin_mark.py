"""The moment after which a changed file in a work folder counts as written by the
attempt."""

import json
import os
import time
from contextlib import suppress
from typing import Final

RECORD: Final = (
    # as corral.agent.outputs.work_record has it, which a shim does not import
    "work.json"
)
TICK_SECONDS: Final = 0.0005


def record_begin(folder: str, work: str) -> None:
    """Record the start time, before the first process of the attempt.

    File timestamps advance in ticks, but the kernel gives finer stamps to a file whose
    stamp was read. The time is therefore read from the second stamp of a file next to
    the work folder: every file in the workdir is older, and every change by the attempt
    is newer. Without a record, every file counts as written; an empty folder needs no
    record.
    """
    with suppress(OSError):
        if os.listdir(work):
            with open(os.path.join(folder, RECORD), "w") as file:
                json.dump({"since_ns": _next_stamp(file.fileno())}, file)


def _next_stamp(file: int) -> int:
    """Return a change time of the open file that is later than that of any earlier
    change."""
    previous_stamp_ns = os.fstat(file).st_ctime_ns
    while (stamp := os.fstat(file).st_ctime_ns) == previous_stamp_ns:
        time.sleep(TICK_SECONDS)
        os.utime(file)
    return stamp
