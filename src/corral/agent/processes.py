"""Processes as /proc shows them: which live, their parents and sessions, and their
arguments and environment."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from corral.engines.local.processes import LocalProcess, stat_of

__all__ = [
    "ENDINGS",
    "LocalProcess",
    "catches",
    "children",
    "descendants",
    "every",
    "lives",
    "marked",
    "myself",
    "parent_of",
    "send",
    "session_of",
    "words_of",
]

ENDINGS: Final = (signal.SIGTERM, signal.SIGINT)  # what an agent is asked to end by
# PF_KTHREAD, PF_EXITING in field 9 of /proc/PID/stat
KERNEL, EXITING = 0x0020_0000, 0x4
LOOKS: Final = 1000  # at a process that is being given another program
SETTLED_LOOKS: Final = 20  # at one that seems to have been given no environment at all
WHOLE_LOOKS: Final = 1000  # at all processes, while others end
LOOK_AGAIN_SECONDS: Final = 0.001

# id and start; no start of one that is gone altogether
_Ended = set[tuple[int, int | None]]
_Look = tuple[list[int], _Ended]


def myself() -> LocalProcess:
    local_process = LocalProcess.find(os.getpid())
    assert local_process is not None
    return local_process


def lives(pid: int) -> bool:
    """Return whether the process lives; a zombie counts as ended."""
    return LocalProcess.find(pid) is not None


def send(pid: int, number: int) -> None:
    """Send a signal to a process; nothing happens if it has ended or may not be
    signalled by this account."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def parent_of(pid: int) -> int | None:
    """Return the id of the process's current parent; None if the process has ended."""
    stat = stat_of(pid)
    return None if stat is None else int(stat[1])


def session_of(pid: int) -> int | None:
    """Return the session of the process; None if it has ended."""
    stat = stat_of(pid)
    return None if stat is None else int(stat[3])


def catches(pid: int, number: int) -> bool:
    """Return whether the process has a handler for the signal, according to the mask in
    /proc."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        mask = next(line for line in lines if line.startswith("SigCgt:")).split()[1]
        return bool(int(mask, 16) >> (number - 1) & 1)
    return False


def descendants(ancestor: int) -> list[int]:
    """Return the living descendants of this process, in any session. Zombies are left
    out, but not their children."""
    return _scan_reliably(lambda: _look_below(ancestor))


def marked(mark: bytes) -> list[int]:
    """Return the living processes that have this `NAME=value` in their environment."""
    return _scan_reliably(lambda: _look_for(mark))


def _scan_reliably(look: Callable[[], _Look]) -> list[int]:
    """Repeat the scan `look` of the processes until its result is reliable, and return
    the processes found. An empty result counts only if no listed process ended during
    the scan.

    A process that is listed, starts a child and ends before the scan reads it leaves a
    child that the list does not have. A process that had already ended in the previous
    scan cannot have started a child in this one. The list can also miss a child whose
    number is below those listed when its parent ended. Process numbers rise until they
    wrap around.
    """
    ended_processes: _Ended = set()
    for _ in range(WHOLE_LOOKS):
        highest_pid = _newest_pid()
        live_pids, now_ended = look()
        if live_pids or (now_ended <= ended_processes and _newest_pid() >= highest_pid):
            return live_pids
        ended_processes = {
            (pid, started) for pid, started in now_ended if started is not None
        }
    return []


def _newest_pid() -> int:
    """Return the process number that was assigned last (proc(5), /proc/loadavg)."""
    return int(Path("/proc/loadavg").read_text().split()[4])


def _look_below(ancestor: int) -> _Look:
    children: dict[int, list[int]] = {}
    ended_processes: _Ended = set()
    for pid in every():
        stat = stat_of(pid)
        if stat is not None:
            children.setdefault(int(stat[1]), []).append(pid)
        if stat is None or stat[0] in "ZX":
            ended_processes.add((pid, None if stat is None else int(stat[19])))
    pids_below, ancestors = [], [ancestor]
    while ancestors:
        below = children.get(ancestors.pop(), [])
        pids_below += below
        ancestors += below
    ended_pids = {pid for pid, _ in ended_processes}
    return [pid for pid in pids_below if pid not in ended_pids], ended_processes


def _look_for(mark: bytes) -> _Look:
    pids, ended_processes = [], set()
    for pid in every():
        with suppress(OSError):
            if mark in _environment(pid) and lives(pid):
                pids.append(pid)
                continue
        stat = stat_of(pid)
        if stat is None or stat[0] in "ZX" or int(stat[6]) & EXITING:
            ended_processes.add((pid, None if stat is None else int(stat[19])))
    return pids, ended_processes


def _environment(pid: int) -> list[bytes]:
    """Return the initial environment of a process. During execve it is empty for a
    moment, and is then read again.

    Raises: OSError when the process has ended or may not be read by this account.
    """
    for look in range(LOOKS):
        text = Path(f"/proc/{pid}/environ").read_bytes()
        if (
            text
            or _is_leaving(pid)
            or (look > SETTLED_LOOKS and not _is_between_programs(pid))
        ):
            return text.split(b"\0")
        time.sleep(LOOK_AGAIN_SECONDS)
    return []


def _is_leaving(pid: int) -> bool:
    """Return whether the process has ended, is ending, or is the kernel's own; none of
    these executes another program."""
    stat = stat_of(pid)
    return stat is None or stat[0] in "ZX" or bool(int(stat[6]) & (KERNEL | EXITING))


def _is_between_programs(pid: int) -> bool:
    """Return whether the process is in execve: its new memory does not yet show where
    the environment ends (field 51)."""
    stat = stat_of(pid)
    return stat is not None and int(stat[48]) == 0


def children(pid: int) -> list[int]:
    """Return the living child processes of the process `pid`, which has a single
    thread. Orphans that it has adopted count as its children."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:  # it is gone, or the kernel does not say: then look at all
        child_pids = [
            candidate_pid
            for candidate_pid in every()
            if (stat := stat_of(candidate_pid)) and int(stat[1]) == pid
        ]
    else:
        child_pids = [int(pid_text) for pid_text in text.split()]
    return [child for child in child_pids if lives(child)]


def words_of(pid: int) -> list[bytes]:
    """Return the arguments with which the process was started; an empty list if it has
    ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    return []


def every() -> Iterator[int]:
    """Iterate over all process numbers, in the reverse order of the list. The last ones
    are the youngest processes, which may start a child and end soon."""
    return (int(name) for name in reversed(os.listdir("/proc")) if name.isdecimal())
