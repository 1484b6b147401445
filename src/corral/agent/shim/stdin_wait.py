"""Detection of a program that waits for input that never arrives, and so wastes its
GPUs."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

# the number of read()
_READ: Final = {"x86_64": "0", "aarch64": "63"}.get(os.uname().machine, "")
MOST_PROCESSES: Final = 64  # of a rank that are looked at


def waits_for_input(pid: int, stdin: int) -> bool:
    """Return whether the process, or a process that it started, reads from this pipe
    and has to wait.

    Args:
        stdin: the shim's end of the pipe that is the standard input of the process.
    """
    with suppress(OSError):
        pipe = os.fstat(stdin).st_ino
        return any(_is_reading_pipe(pid, pipe) for pid in _process_tree(pid))
    return False


def _is_reading_pipe(pid: int, pipe: int) -> bool:
    with suppress(OSError):
        call = Path(f"/proc/{pid}/syscall").read_text().split()
        return (
            call[:2] == [_READ, "0x0"]
            and Path(f"/proc/{pid}/fd/0").stat().st_ino == pipe
        )
    return False


def _process_tree(pid: int) -> Iterator[int]:
    pids, looked = [pid], 0
    while pids and looked < MOST_PROCESSES:
        current_pid, looked = pids.pop(), looked + 1
        yield current_pid
        with suppress(OSError):
            children = Path(
                f"/proc/{current_pid}/task/{current_pid}/children"
            ).read_text()
            pids += [int(child) for child in children.split()]
