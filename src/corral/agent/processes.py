"""Processes as /proc shows them, each named by its id and its start, so that none is mistaken."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """`started` is in clock ticks since the machine's boot, as field 22 of /proc/PID/stat."""

    pid: int
    started: int

    @classmethod
    def find(cls, pid: int) -> "Process | None":
        """The living process with this id; one that has ended and is not yet reaped is none."""
        stat = _stat(pid)
        return None if stat is None or stat[0] in "ZX" else cls(pid, int(stat[19]))

    @classmethod
    def recorded(cls, file: Path) -> "Process | None":
        """The process that is recorded as "PID STARTED" in the file, if it still lives."""
        try:
            pid, started = (int(word) for word in file.read_text().split())
        except (OSError, ValueError):
            return None
        there = cls.find(pid)
        return there if there == cls(pid, started) else None

    def record(self, file: Path) -> None:
        """Write "PID STARTED" to the file, as a whole."""
        fresh = file.with_name(f".{file.name}.{self.pid}")
        fresh.write_text(f"{self.pid} {self.started}\n")
        fresh.rename(file)

    @property
    def lives(self) -> bool:
        return Process.find(self.pid) == self

    def signal(self, number: int) -> None:
        """Send the signal to this process and to no other; nothing when it is gone."""
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.lives:  # the descriptor stays with whom it was opened for
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def myself() -> Process:
    found = Process.find(os.getpid())
    assert found is not None
    return found


def lives(pid: int) -> bool:
    """Whether the id is that of a process which has not ended: a zombie counts as gone."""
    return Process.find(pid) is not None


def send(pid: int, number: int) -> None:
    """A signal to a process that may be gone, or not be ours to signal."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def descendants(ancestor: int) -> list[int]:
    """Living processes below this one, in any session; zombies are left out, not what they left."""
    children: dict[int, list[int]] = {}
    gone = set()
    for pid in every():
        stat = _stat(pid)
        if stat is None:
            continue
        children.setdefault(int(stat[1]), []).append(pid)
        if stat[0] in "ZX":
            gone.add(pid)
    found, left = [], [ancestor]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return [pid for pid in found if pid not in gone]


def marked(mark: bytes) -> list[int]:
    """Living processes that were given this `NAME=value` in their environment."""
    found = []
    for pid in every():
        with suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") and lives(pid):
                found.append(pid)
    return found


def children(pid: int) -> list[int]:
    """Living processes that it started or adopted, of one with a single thread."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:  # it is gone, or the kernel does not say: then look at all
        found = [other for other in every() if (stat := _stat(other)) and int(stat[1]) == pid]
    else:
        found = [int(word) for word in text.split()]
    return [child for child in found if lives(child)]


def words_of(pid: int) -> list[bytes]:
    """The words it was started with; none when it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    return []


def every() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _stat(pid: int) -> list[str] | None:
    """Fields 3 and on of /proc/PID/stat; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().decode("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
