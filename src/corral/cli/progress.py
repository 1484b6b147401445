"""Progress display on stderr for work that prints nothing itself."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

FIRST_SECONDS: Final = 2.0  # work that is over by then shows nothing
TERMINAL_SECONDS: Final = 0.5  # a terminal has one line that changes
LINE_SECONDS: Final = 4.0  # a file has a line this often
CLEAR: Final = "\r\x1b[2K"


@dataclass(slots=True)
class WorkProgress:
    """State of a task whose progress is shown. `doing`: text for the current step."""

    doing: str = ""


@contextmanager
def progress(doing: str, *, shown: bool) -> Iterator[WorkProgress]:
    """Show the current step, and its duration, while the `with` body runs."""
    now, end_event = WorkProgress(doing), threading.Event()
    if not shown:
        yield now
        return
    ticker = threading.Thread(
        target=_print_progress, args=(now, end_event), daemon=True
    )
    ticker.start()
    try:
        yield now
    finally:
        end_event.set()
        ticker.join()


def _print_progress(now: WorkProgress, ended: threading.Event) -> None:
    began, is_terminal = time.monotonic(), sys.stderr.isatty()
    seconds = TERMINAL_SECONDS if is_terminal else LINE_SECONDS
    if ended.wait(FIRST_SECONDS):
        return
    line_prefix, line_suffix = (CLEAR, "") if is_terminal else ("", "\n")
    try:
        while True:
            text = f"{now.doing}, {time.monotonic() - began:.0f} s"
            print(f"{line_prefix}{text}", end=line_suffix, file=sys.stderr, flush=True)
            if ended.wait(seconds):
                break
        print(line_prefix, end="", file=sys.stderr, flush=True)
    except OSError:
        pass  # standard error is closed
