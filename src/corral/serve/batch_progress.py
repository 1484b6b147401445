"""Progress of a batch: a file in the work folder, and messages to the shim of the job."""

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

PROGRESS_FILE: Final = "progress.json"
SEND_SECONDS: Final = 1.0
_READ_BYTES: Final = 65536


class BatchState(StrEnum):
    """State of the program of a batch."""

    RUNNING = "running"
    WAITING = "waiting"  # nothing can be sent now
    STOPPED = "stopped"  # before its end; another attempt goes on
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """Progress of a batch. Times are seconds since 1970.

    Args:
        unanswered: Lines that are neither answered nor failed nor expired.
        concurrency: Most requests at once, as it is now.
        is_behind: Whether the present rate is too low for the deadline.
        expected_end: By the present rate; None: not known.
        trouble: Why nothing can be sent now; "" otherwise.
    """

    state: BatchState
    service: str
    lines: int
    done: int
    failed: int
    expired: int
    unanswered: int
    lines_per_second: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    tokens_per_second: float
    concurrency: int
    is_behind: bool
    deadline: float | None
    expected_end: float | None
    at: float
    trouble: str = ""


def expected_end(
    unanswered: int, lines_per_second: float, now: float, deadline: float | None
) -> float | None:
    """Return when the batch ends by its rate, and at its deadline at the latest."""
    if not unanswered:
        return now
    end = now + unanswered / lines_per_second if lines_per_second > 0 else None
    if deadline is None or (end is not None and end < deadline):
        return end
    return deadline


def write_progress(folder: Path, progress: BatchProgress) -> None:
    """Replace the progress file of a folder. Raises: OSError."""
    staged = folder / f".{PROGRESS_FILE}.{os.getpid()}"
    staged.write_text(json.dumps(asdict(progress), indent=1) + "\n")
    staged.replace(folder / PROGRESS_FILE)


def shim_message(
    progress: BatchProgress, *, first_step: int, seconds: float
) -> dict[str, object]:
    """Return the message with which the job shows its progress: a line is a step.

    Args:
        first_step: Lines that were finished when this attempt began.
        seconds: Seconds since then.
    """
    return {
        "type": "progress",
        "rank": 0,
        "step": progress.lines - progress.unanswered,
        "first_step": first_step,
        "until": progress.lines,
        "samples_per_second": progress.lines_per_second,
        "compute_seconds": seconds,
        "scalars": {
            "failed_lines": progress.failed,
            "tokens_per_second": progress.tokens_per_second,
            "concurrency": progress.concurrency,
        },
    }


class ShimReporter:
    """Connection to the shim of the job. Messages are lost while it is broken: the next
    one replaces them.

    Args:
        path: Path of the shim's socket; "" outside a job.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._line: socket.socket | None = None

    def send(self, message: dict[str, object]) -> None:
        """Send a message, if the shim can be reached."""
        if not self._path:
            return
        try:
            if self._line is None:
                self._line = _connect(self._path)
                self._write({"type": "hello", "rank": 0})
            self._drop_received()
            self._write(message)
        except OSError:
            self.close()

    def _write(self, message: dict[str, object]) -> None:
        assert self._line is not None
        text = json.dumps(message, separators=(",", ":"))
        self._line.sendall(text.encode() + b"\n")

    def _drop_received(self) -> None:
        """Read what the shim has sent. A stop comes with SIGTERM too, which is enough."""
        assert self._line is not None
        self._line.setblocking(False)
        with suppress(BlockingIOError):
            while self._line.recv(_READ_BYTES):
                pass
            raise ConnectionResetError("the shim closed the connection")
        self._line.settimeout(SEND_SECONDS)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


def _connect(path: str) -> socket.socket:
    """Connect to a Unix socket, also if its path is too long for a socket address."""
    folder, name = os.path.split(path)
    directory = os.open(folder or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.settimeout(SEND_SECONDS)
            line.connect(f"/proc/self/fd/{directory}/{name}")
        except OSError:
            line.close()
            raise
        return line
    finally:
        os.close(directory)
