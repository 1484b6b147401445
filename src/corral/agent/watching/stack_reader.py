"""Reading of the stacks of an attempt's Python processes, from outside, by py-spy.

The processes go on, and need not cooperate: a process that is stopped, that spins, or
that does not release Python's lock is read as well.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from corral.domain.bounds import NAME_LETTERS, SENTENCE_LETTERS
from corral.domain.process_stacks import (
    MOST_FRAMES,
    MOST_LISTED,
    MOST_PROCESSES,
    MOST_THREADS,
    ProcessRole,
    ProcessStacks,
    StackFrame,
    ThreadStack,
)

READ_SECONDS: Final = 10.0  # for one process
READ_ALL_SECONDS: Final = 40.0  # less than the head waits
AT_ONCE: Final = 4
COMMAND_LETTERS: Final = 200
RANK_DIGITS: Final = 9
FILE_LETTERS: Final = 512  # the end of a path
MAIN_THREAD: Final = "MainThread"
# a launcher such as torchrun gives these to the processes that it starts
GIVEN_BY_LAUNCHERS: Final = ("RANK", "LOCAL_RANK", "GROUP_RANK", "TORCHELASTIC_RUN_ID")
NOT_INSTALLED: Final = (
    "py-spy is not installed on this node; to install it, run there: "
    "pip install 'corral[watch]'"
)

TOO_MANY: Final = f"of each node, {MOST_PROCESSES} processes are read"
# py-spy looks for the interpreter by reading its stacks
NO_INTERPRETER: Final = "Failed to find a python interpreter"
TOO_DEEP: Final = (
    "py-spy cannot read its stacks; this happens if a thread is inside more than 4,096 "
    "calls"
)


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int


class _Thread(msgspec.Struct):
    """A thread as `py-spy dump --json` prints it."""

    pid: int
    frames: list[_Frame]
    thread_name: str | None = None
    os_thread_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    pid: int
    parent: int
    state: str
    command: str
    variables: Mapping[str, str]
    work: str  # the attempt's work folder

    @property
    def place(self) -> tuple[str | None, ...]:
        return tuple(self.variables.get(name) for name in GIVEN_BY_LAUNCHERS)


async def read_stacks(
    attempt_folder: Path,
    is_wanted: Callable[[ProcessRole, int | None], bool] = lambda role, rank: True,
) -> list[ProcessStacks]:
    """Return the stacks of the Python processes of an attempt on this machine, those of
    ranks first. Those after the first MOST_PROCESSES are not read, and those after
    MOST_LISTED are left out.

    Args:
        is_wanted: Whether a process is read, by its role and the number of its rank.
    """
    processes = await asyncio.to_thread(_python_processes, attempt_folder)
    roles = _roles_of(processes)
    ordered = sorted(
        (
            process
            for process in processes
            if is_wanted(roles[process.pid], _number(process.variables.get("RANK")))
        ),
        key=lambda process: list(ProcessRole).index(roles[process.pid]),
    )
    places = asyncio.Semaphore(AT_ONCE)
    until = asyncio.get_running_loop().time() + READ_ALL_SECONDS

    async def read(process: _Process) -> ProcessStacks:
        async with places:
            threads, trouble = await _read_process(process, until)
        return _stacks_of(process, roles, processes, threads, trouble)

    stacks = await asyncio.gather(*map(read, ordered[:MOST_PROCESSES]))
    unread = ordered[MOST_PROCESSES:MOST_LISTED]
    return [
        *stacks,
        *(_stacks_of(process, roles, processes, (), TOO_MANY) for process in unread),
    ]


async def _read_process(
    process: _Process, until: float
) -> tuple[tuple[ThreadStack, ...], str]:
    """Return the stacks of a process, and why they could not be read. `until`: when the
    reading ends, by the clock of the event loop."""
    seconds = min(READ_SECONDS, until - asyncio.get_running_loop().time())
    try:
        return await _dump(process, seconds), ""
    except TimeoutError:
        return (), "its stacks could not be read in time"
    except (OSError, ValueError) as error:
        return (), str(error)[:SENTENCE_LETTERS]


def _stacks_of(
    process: _Process,
    roles: Mapping[int, ProcessRole],
    processes: Iterable[_Process],
    threads: tuple[ThreadStack, ...],
    trouble: str,
) -> ProcessStacks:
    return ProcessStacks(
        pid=process.pid,
        role=roles[process.pid],
        rank=_number(process.variables.get("RANK")),
        has_global_rank=not _shares_rank(process, processes),
        local_rank=_number(process.variables.get("LOCAL_RANK")),
        state=process.state,
        command=process.command,
        threads=threads,
        trouble=trouble,
    )


async def _dump(process: _Process, seconds: float) -> tuple[ThreadStack, ...]:
    """Return the stacks of a process. Raises: OSError, ValueError; TimeoutError after
    `seconds`."""
    if seconds <= 0:
        raise TimeoutError
    folder = Path(sys.executable).parent
    path = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
    program = shutil.which("py-spy", path=path)
    if program is None:
        raise FileNotFoundError(NOT_INSTALLED)
    reader = await asyncio.create_subprocess_exec(
        *(program, "dump", "--nonblocking", "--json", "--pid", str(process.pid)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds):
            output, errors = await reader.communicate()
    finally:
        with suppress(ProcessLookupError):
            reader.kill()
    if reader.returncode:
        lines = errors.decode(errors="replace").strip().splitlines()
        text = lines[0] if lines else f"py-spy ended with {reader.returncode}"
        raise OSError(TOO_DEEP if NO_INTERPRETER in text else text)
    dumped = msgspec.json.decode(output, type=list[_Thread])
    return tuple(
        ThreadStack(
            name=(thread.thread_name or "")[:NAME_LETTERS],
            frames=tuple(
                StackFrame(
                    function=frame.name[:NAME_LETTERS],
                    # the same on all nodes, whose work folders have different paths
                    file=frame.filename.removeprefix(process.work)[-FILE_LETTERS:],
                    line=frame.line,
                )
                for frame in thread.frames[:MOST_FRAMES]
            ),
            is_main=thread.os_thread_id == process.pid
            or thread.thread_name == MAIN_THREAD,
        )
        for thread in dumped[:MOST_THREADS]
    )


def _python_processes(attempt_folder: Path) -> list[_Process]:
    processes = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, ValueError):
                process = _process_of(int(entry), attempt_folder)
                if process is not None:
                    processes.append(process)
    return processes


def _process_of(pid: int, attempt_folder: Path) -> _Process | None:
    """Return the process if it is a Python process of the attempt. Raises: OSError,
    ValueError."""
    proc, mark = Path("/proc") / str(pid), f"CORRAL_SOCKET={attempt_folder}/"
    texts = (proc / "environ").read_bytes().decode(errors="replace").split("\0")
    if not any(text.startswith(mark) for text in texts):
        return None
    if "python" not in os.path.basename(os.readlink(proc / "exe")):
        return None
    variables = dict(text.split("=", 1) for text in texts if "=" in text)
    stat = (proc / "stat").read_text(errors="replace").rpartition(")")[2].split()
    words = (proc / "cmdline").read_bytes().decode(errors="replace").split("\0")
    return _Process(
        pid=pid,
        parent=int(stat[1]),
        state=stat[0],
        command=" ".join(words).strip()[:COMMAND_LETTERS],
        variables={
            name: variables[name] for name in GIVEN_BY_LAUNCHERS if name in variables
        },
        work=f"{attempt_folder}/work/",
    )


def _roles_of(processes: Iterable[_Process]) -> dict[int, ProcessRole]:
    """Return the role of each process, by its id. A process that has the same place as
    the one that started it works for it; one that has started processes of other places
    is their launcher."""
    by_pid = {process.pid: process for process in processes}
    roles = dict.fromkeys(by_pid, ProcessRole.RANK)
    for process in by_pid.values():
        parent = by_pid.get(process.parent)
        if parent is None:
            continue
        if parent.place == process.place:
            roles[process.pid] = ProcessRole.WORKER
        elif "LOCAL_RANK" in process.variables and _starts_ranks(process):
            roles[parent.pid] = ProcessRole.LAUNCHER
    return roles


def _starts_ranks(process: _Process) -> bool:
    """Return whether the process was started by a launcher that is no rank itself. The
    first rank of Lightning starts the others, without these variables."""
    return "TORCHELASTIC_RUN_ID" in process.variables


def _shares_rank(process: _Process, processes: Iterable[_Process]) -> bool:
    """Return whether another process has the same RANK at another place of its node."""
    return any(
        other.variables.get("RANK") == process.variables.get("RANK")
        and other.variables.get("LOCAL_RANK") != process.variables.get("LOCAL_RANK")
        for other in processes
    )


def _number(text: str | None) -> int | None:
    if text is None or not text.isdecimal() or len(text) > RANK_DIGITS:
        return None
    return int(text)
