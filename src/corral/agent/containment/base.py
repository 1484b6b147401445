"""The interface of every containment, and the limits that a containment enforces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

CGROUP = "cgroup"
PID_NAMESPACE = "pid-namespace"
SUBREAPER = "subreaper"
ENGINE = "engine"  # whoever lent the node ends all that is left, and holds the limits


class ContainmentChoice(NamedTuple):
    """The strongest kind of containment that is available on a node, and the reason why
    no stronger kind is available."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainmentLimits:
    """Limits of a containment; zero and None mean no limit. `devices` maps the major
    number of a device to the minor numbers that may be opened; all other minors of that
    major are denied."""

    pids: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0
    devices: Mapping[int, Sequence[int]] | None = None


class MemoryEvents(NamedTuple):
    """Memory events of a containment. `oom_kills` counts the processes that the kernel
    killed for lack of memory. `limit_bytes` is None where it killed them because the
    whole machine had no memory left."""

    oom_kills: int
    peak_bytes: int
    limit_bytes: int | None


class Containment(Protocol):
    """Container of all processes of an attempt on a node, including those that they
    fork.

    `record` lets another process find the containment later: see `recorded`. `warnings`
    name limits that were requested but cannot be enforced on this machine.
    """

    kind: str
    warnings: Sequence[str]

    @property
    def record(self) -> Mapping[str, Any]: ...

    def enter(self) -> None:
        """Enter the containment; a new process calls this before it becomes a rank.

        Raises: OSError when this fails.
        """
        ...

    def pids(self) -> list[int]:
        """Return the living processes of the containment, as ids in the caller's pid
        namespace."""
        ...

    def kill(self) -> None:
        """Send SIGKILL once to all processes of the containment. Repeat this until
        `pids` is empty."""
        ...

    def memory(self) -> MemoryEvents | None:
        """Return the memory events of the containment; None where its memory is not
        limited."""
        ...

    def remove(self) -> None:
        """Remove the containment, which must be empty."""
        ...
