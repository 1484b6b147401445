"""Parser of `scontrol -d show nodes -o`: each node's capacity, what is allocated on it,
and its health.

Source: scontrol(1) and sinfo(1) of Slurm 22.05, "NODE STATE CODES".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from corral.domain.units import MILLIS_PER_CPU

_MIB: Final = 1024**2
_FIELD: Final = re.compile(r"(?:^| )([A-Z][A-Za-z]*)=")
_GRES: Final = re.compile(r"gpu(?::([A-Za-z][\w.-]*))?:(\d+)(?:\([^)]*\))?", re.ASCII)
DOWN: Final = frozenset({"DOWN", "POWERED_DOWN", "POWERING_DOWN"})
CLOSED: Final = frozenset(
    {
        "DRAIN",
        "DRAINED",
        "DRAINING",
        "FAIL",
        "FAILING",
        "MAINT",
        "RESERVED",
        "REBOOT",
        "BLOCKED",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
        "INVAL",
        "INVALID_REG",
        "FUTURE",
        "UNKNOWN",
    }
)
ABSENT: Final = frozenset({"FUTURE", "INVAL", "UNKNOWN"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """One node as Slurm reports it. `gpus`: the type of each GPU by its index, "" where
    Slurm names none.

    `used_*`: what all jobs on the node hold, Corral's and others'. `flags`: the node's
    state and its additional flags. `reason`: why an operator, or Slurm, has taken the
    node out of service.
    """

    name: str
    address: str
    flags: frozenset[str]
    partitions: frozenset[str]
    features: tuple[str, ...]
    gpus: tuple[str, ...]
    cpus: int
    memory_bytes: int
    used_gpus: int
    used_cpus: int
    used_memory_bytes: int
    reason: str = ""

    @property
    def is_down(self) -> bool:
        return bool(self.flags & DOWN)

    @property
    def closed(self) -> str:
        """Return why the node takes no new work; "" if it does."""
        return self._said if self.flags & (CLOSED | DOWN) else ""

    @property
    def is_silent(self) -> bool:
        return "NOT_RESPONDING" in self.flags

    @property
    def proof(self) -> str:
        """Return the proof that nothing can run on the node any more; "" while
        something may."""
        return self._said if self.is_down else ""

    @property
    def _said(self) -> str:
        state = "+".join(sorted(self.flags))
        return f"Slurm reports node {self.name} as {state}" + (
            f": {self.reason}" if self.reason else ""
        )


def nodes_of(text: str) -> tuple[SlurmNode, ...]:
    """Parse the nodes, in Slurm's order, without those that are only planned.

    Raises: ValueError for output that Slurm does not print.
    """
    slurm_nodes = (
        _node_from_fields(dict(_split_fields(line)))
        for line in text.splitlines()
        if "NodeName=" in line
    )
    return tuple(node for node in slurm_nodes if not node.flags & ABSENT)


def _split_fields(line: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs (NAME, VALUE) of a line of NAME=VALUE, in which a value may
    contain spaces."""
    marks = list(_FIELD.finditer(line))
    for mark, next_mark in zip(marks, [*marks[1:], None], strict=True):
        yield (
            mark.group(1),
            line[mark.end() : next_mark.start() if next_mark else None].strip(),
        )


def _node_from_fields(said: dict[str, str]) -> SlurmNode:
    try:
        cpus = int(said.get("CPUEfctv") or said["CPUTot"])
        reserved_mib = int(said.get("MemSpecLimit", "0"))
        return SlurmNode(
            name=said["NodeName"],
            address=said.get("NodeAddr", said["NodeName"]),
            flags=frozenset(
                said["State"].upper().replace("*", "+NOT_RESPONDING").split("+")
            ),
            partitions=frozenset(_split_list(said.get("Partitions", ""))),
            features=_split_list(said.get("ActiveFeatures", "")),
            gpus=gpus_of(said.get("Gres", "")),
            cpus=cpus,
            memory_bytes=max(int(said["RealMemory"]) - reserved_mib, 0) * _MIB,
            used_gpus=sum(
                count for _, count in _parse_gres_gpus(said.get("GresUsed", ""))
            ),
            used_cpus=int(said["CPUAlloc"]),
            used_memory_bytes=int(said["AllocMem"]) * _MIB,
            reason=said.get("Reason", "").partition(" [")[0],
        )
    except (KeyError, ValueError) as wrong:
        raise ValueError(
            f"scontrol printed a node that cannot be read: {wrong!r}"
        ) from None


def _split_list(text: str) -> tuple[str, ...]:
    return tuple(
        list_entry
        for list_entry in text.split(",")
        if list_entry and list_entry != "(null)"
    )


def gpus_of(gres: str) -> tuple[str, ...]:
    """Return the type of each GPU in a text such as "gpu:h100:2(S:0-1)"; "" where no
    type is named."""
    return tuple(kind for kind, count in _parse_gres_gpus(gres) for _ in range(count))


def _parse_gres_gpus(gres: str) -> Iterator[tuple[str, int]]:
    """Yield (type, number of GPUs) for a text such as
    "gpu:h100:2(S:0-1),gpu:a100:1(IDX:0),shard:4"."""
    for kind, count in _GRES.findall(gres):
        yield kind, int(count)


def cpu_millis_of(cpus: int) -> int:
    return cpus * MILLIS_PER_CPU
