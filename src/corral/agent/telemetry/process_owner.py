"""Search for the owner of a process: the attempt whose shim is its ancestor, since
every process of an attempt descends from its shim."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from corral.agent.processes import LocalProcess, parent_of
from corral.agent.shim.file_names import PID_FILE
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.observed_state import AttemptKey
from corral.domain.telemetry import GpuProcess

DEEPEST: Final = 256  # generations below a shim


def shims(attempts: Path) -> dict[int, AttemptKey]:
    """Return the living shims of the node's attempts, by process id."""
    shim_list = {}
    for file in attempts.glob(f"*/{PID_FILE}"):
        job, _, number = file.parent.name.rpartition(".")
        shim = LocalProcess.recorded(file)
        if shim is not None and number.isdecimal():
            shim_list[shim.pid] = (JobId(job), AttemptNumber(int(number)))
    return shim_list


def owner(pid: int, known: Mapping[int, AttemptKey]) -> AttemptKey | None:
    """Return the attempt that the process belongs to; None if it belongs to no attempt
    of this node."""
    ancestor_pid: int | None = pid
    for _ in range(DEEPEST):
        if ancestor_pid is None or ancestor_pid <= 1:
            return None
        if ancestor_pid in known:
            return known[ancestor_pid]
        ancestor_pid = parent_of(ancestor_pid)
    return None


def attributed(
    processes: Iterable[GpuProcess],
    known: Mapping[int, AttemptKey],
    granted: AttemptKey | None = None,
) -> tuple[GpuProcess, ...]:
    """Return the processes, each with the attempt that it belongs to. `granted`: the
    attempt that holds the GPU alone. It owns each process that cannot be found here,
    because a driver in a container may report process ids of the machine."""
    owned_processes = []
    for process in processes:
        owner_key = owner(process.pid, known)
        if owner_key is None and granted is not None and parent_of(process.pid) is None:
            owner_key = granted
        job, attempt = owner_key or (None, None)
        owned_processes.append(replace(process, job=job, attempt=attempt))
    return tuple(owned_processes)
