"""Interface of every containment, and the limits that it enforces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

CGROUP = "cgroup"
PID_NAMESPACE = "pid-namespace"
SUBREAPER = "subreaper"
ENGINE = "engine"  # whoever lent the node ends all that is left, and holds the limits


class ContainmentChoice(NamedTuple):
    """The strongest containment to be had on a node, and why none stronger."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainmentLimits:
    """Zeros and None ask for no limit. `devices`: of these majors only the minors may
    be opened."""

    pids: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0
    devices: Mapping[int, Sequence[int]] | None = None


class MemoryEvents(NamedTuple):
    """`oom_kills` counts processes that the kernel killed. `limit_bytes` is None where
    it killed them because the whole machine had no memory left."""

    oom_kills: int
    peak_bytes: int
    limit_bytes: int | None


class Containment(Protocol):
    """Container of all processes of an attempt on a node, including those that they
    fork.

    `record` lets another process find it again: see `recorded`. `warnings` are limits
    that were asked for and cannot be held here.
    """

    kind: str
    warnings: Sequence[str]

    @property
    def record(self) -> Mapping[str, Any]: ...

    def enter(self) -> None:
        """Called by a new process before it becomes a rank. Raises: OSError."""
        ...

    def pids(self) -> list[int]:
        """Its living processes, as ids of the caller's namespace."""
        ...

    def kill(self) -> None:
        """One round of SIGKILL to all of it. Repeat until `pids` is empty."""
        ...

    def memory(self) -> MemoryEvents | None:
        """None where memory is not limited."""
        ...

    def remove(self) -> None:
        """Let go of an empty one."""
        ...
