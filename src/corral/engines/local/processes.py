"""Processes identified by their id and start time, so that no other process with the
same id is mistaken for them."""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """One process. `started` is in clock ticks since the machine's boot, as in field 22
    of /proc/PID/stat."""

    pid: int
    started: int

    @classmethod
    def find(cls, pid: int) -> "LocalProcess | None":
        """Return the living process with this id; None without one, or if it has ended
        and is not yet reaped."""
        stat = stat_of(pid)
        return None if stat is None or stat[0] in "ZX" else cls(pid, int(stat[19]))

    @classmethod
    def recorded(cls, file: Path) -> "LocalProcess | None":
        """Return the process that is recorded as "PID STARTED" in the file; None if it
        no longer lives."""
        try:
            pid, started = (
                int(number_text) for number_text in file.read_text().split()
            )
        except (OSError, ValueError):
            return None
        local_process = cls.find(pid)
        return local_process if local_process == cls(pid, started) else None

    def record(self, file: Path) -> None:
        """Write "PID STARTED" to the file, as a whole."""
        staged_file = file.with_name(f".{file.name}.{self.pid}")
        staged_file.write_text(f"{self.pid} {self.started}\n")
        staged_file.rename(file)

    @property
    def lives(self) -> bool:
        return LocalProcess.find(self.pid) == self

    def signal(self, number: int) -> None:
        """Send the signal to this process and to no other; do nothing if the process is
        gone."""
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                # the descriptor stays with the process that it was opened for
                if self.lives:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def stat_of(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from field 3 on; None when there is no such
    process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().decode("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None


def spawn(words: list[str], env: Mapping[str, str], output: Path) -> int:
    """Start a program in its own session, with its output appended to a file. Return
    its process id."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        words[0],
        words,
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE],
        setsigmask=[],
    )


def reap(pid: int) -> None:
    """Reap an ended child of this process; do nothing if it is not a child."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
