"""Counters of a process from /proc, by which a process that works differs from one that
hangs."""

import os
import platform
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.domain.hang import RankState

STATES: Final = {
    "R": RankState.RUNNING,
    "D": RankState.UNINTERRUPTIBLE,
    "T": RankState.STOPPED,
    "t": RankState.STOPPED,
    "Z": RankState.ABSENT,
    "X": RankState.ABSENT,
}
TRACED: Final = "t"  # a debugger has stopped it
_CLOCK_NANOSLEEP: Final = {"x86_64": 230, "aarch64": 115}
_ABSOLUTE: Final = 1  # flag of clock_nanosleep
_TIMESPEC: Final = struct.Struct("qq")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCounters:
    """Counters of one process at one moment.

    Args:
        state: One letter, as in /proc/PID/stat.
        cpu_seconds: CPU time of all of its threads.
        io_bytes: Bytes that it has read and written; 0 if that may not be read.
        page_faults: Pages that its memory has got.
        switches: How often its main thread has waited for something.
        sleep_ends: When its main thread wakes from a sleep, by the monotonic clock; None
            if it does not sleep, or that may not be read.
    """

    state: str
    cpu_seconds: float
    io_bytes: int = 0
    page_faults: int = 0
    switches: int = 0
    sleep_ends: float | None = None

    @property
    def rank_state(self) -> RankState:
        return STATES.get(self.state, RankState.SLEEPING)


def read_counters(pid: int) -> RankCounters | None:
    """Return the counters of a process; None if it has ended."""
    proc = Path("/proc") / str(pid)
    try:
        fields = (proc / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return RankCounters(
        state=fields[0],
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        io_bytes=_sum_of(proc / "io", ("rchar", "wchar")),
        page_faults=int(fields[7]),
        switches=_sum_of(
            proc / "task" / str(pid) / "status", ("voluntary_ctxt_switches",)
        ),
        sleep_ends=_sleep_end(proc),
    )


def _sum_of(file: Path, names: tuple[str, ...]) -> int:
    total = 0
    with suppress(OSError, ValueError):
        for line in file.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name in names:
                total += int(value)
    return total


def _sleep_end(proc: Path) -> float | None:
    """Return when the main thread of a process wakes from its sleep. Python sleeps until
    a moment, whose address is an argument of the system call."""
    with suppress(OSError, ValueError, struct.error):
        words = (proc / "syscall").read_text().split()
        number, clock, flags, address = (int(word, 0) for word in words[:4])
        if (
            number == _CLOCK_NANOSLEEP.get(platform.machine())
            and clock == time.CLOCK_MONOTONIC
            and flags & _ABSOLUTE
        ):
            with (proc / "mem").open("rb", buffering=0) as memory:
                memory.seek(address)
                seconds, nanoseconds = _TIMESPEC.unpack(memory.read(_TIMESPEC.size))
            return float(seconds + nanoseconds / 1e9)
    return None
