"""The weakest containment: the shim adopts orphans; if the shim dies, processes are
found by their environment.

A process escapes if it clears its environment and outlives a killed shim. This
containment is therefore used only where no stronger one is available, with a warning.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.agent.containment import cgroup
from corral.agent.containment.base import (
    ENGINE,
    SUBREAPER,
    ContainmentLimits,
    MemoryEvents,
)
from corral.agent.processes import descendants, marked, send


@dataclass(slots=True, kw_only=True)
class Subreaper:
    """Containment by a subreaper. `mark` is "CORRAL_SOCKET=...", which is in the
    environment of every rank of the attempt."""

    shim: int
    mark: str
    warnings: Sequence[str] = ()
    kind: str = SUBREAPER

    @property
    def record(self) -> Mapping[str, Any]:
        return {"kind": SUBREAPER, "shim": self.shim, "mark": self.mark}

    def enter(self) -> None:
        """Do nothing: a child of the shim is in the containment already."""

    def pids(self) -> list[int]:
        if os.getpid() == self.shim:
            return descendants(self.shim)
        return marked(os.fsencode(self.mark))

    def kill(self) -> None:
        """Kill all processes. All are stopped before any is killed, because a process
        that forks quickly would otherwise escape."""
        stopped: set[int] = set()
        for _ in range(64):
            new_pids = set(self.pids()) - stopped
            if not new_pids:
                break
            for pid in new_pids:
                send(pid, signal.SIGSTOP)
            stopped |= new_pids
        for pid in stopped:
            send(pid, signal.SIGKILL)

    def memory(self) -> MemoryEvents | None:
        return cgroup.around() if self.kind == ENGINE else None

    def remove(self) -> None:
        """Do nothing: a subreaper has nothing to remove."""


def create(mark: str, limits: ContainmentLimits) -> Subreaper:
    warnings = [
        "neither cgroups nor pid namespaces are available on this node: a process that "
        "detaches itself may outlive its job",
        *(["the memory limit is not enforced"] if limits.memory_bytes else []),
    ]
    return Subreaper(shim=os.getpid(), mark=mark, warnings=warnings)


def inside_engine(mark: str) -> Subreaper:
    """Return a subreaper as containment for use inside an engine's own containment,
    which holds the agent, its shims and their ranks. The engine ends any process that
    escapes from the subreaper. A cgroup that Corral creates below the engine's cgroup
    would not be inspected by the engine."""
    return Subreaper(shim=os.getpid(), mark=mark, kind=ENGINE)
