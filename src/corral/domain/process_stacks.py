"""Stacks of the Python processes of an attempt, read from outside at one moment."""

from dataclasses import dataclass
from enum import StrEnum

MOST_PROCESSES = 64  # of an attempt on one node, whose stacks are read
MOST_LISTED = 1_000  # of these, with those whose stacks are not read
MOST_THREADS = 200  # of a process
MOST_FRAMES = 200  # of a thread, the innermost ones


class ProcessRole(StrEnum):
    """Part of a Python process in its attempt."""

    RANK = "rank"
    LAUNCHER = "launcher"  # it has started the processes of ranks
    WORKER = "worker"  # a rank has started it, for example to load data


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFrame:
    """One call of a stack. `file` is a path of the process, relative to its job's work
    folder where it is in that folder."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """The calls of one thread, the innermost first."""

    name: str
    frames: tuple[StackFrame, ...]
    is_main: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStacks:
    """Stacks of one Python process.

    Args:
        rank: Number of its rank, by its variable RANK; None without one.
        has_global_rank: Each process of the job has another RANK.
        local_rank: Its variable LOCAL_RANK; None without one.
        state: One letter, as in /proc/PID/stat: R runs, S sleeps, D waits for a device,
            T is stopped.
        command: How it was started, cut.
        threads: Empty if the stacks could not be read.
        trouble: Why they could not be read; "" otherwise.
    """

    pid: int
    role: ProcessRole
    rank: int | None
    has_global_rank: bool = True
    local_rank: int | None
    state: str
    command: str
    threads: tuple[ThreadStack, ...] = ()
    trouble: str = ""

    @property
    def main_thread(self) -> ThreadStack | None:
        """Return the thread that Python started first; None if it could not be read."""
        return next((thread for thread in self.threads if thread.is_main), None)
