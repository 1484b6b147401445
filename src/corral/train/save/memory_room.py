"""Free memory for the copies of saves on a node."""

import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

USABLE: Final = 0.8  # of the free memory: the rest is the training's
_GROUPS: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Need of one rank. `node` is the same for the ranks that share a memory."""

    node: str
    needed_bytes: int
    free_bytes: int


def shortage(needs: Sequence[MemoryNeed]) -> str:
    """Return a text about a node whose free memory is too small for the needs of its
    ranks, or "" if there is room everywhere."""
    needed_bytes: dict[str, int] = defaultdict(int)
    free_bytes: dict[str, int] = {}
    for need in needs:
        needed_bytes[need.node] += need.needed_bytes
        free_bytes[need.node] = min(
            need.free_bytes, free_bytes.get(need.node, need.free_bytes)
        )
    for node, total_bytes in needed_bytes.items():
        if total_bytes > USABLE * free_bytes[node]:
            return (
                f"the two copies of a save need {total_bytes / 1e9:.2f} GB of a node's "
                f"memory, and {USABLE * free_bytes[node] / 1e9:.2f} GB may be used"
            )
    return ""


def free_memory_bytes(folder: Path) -> int:
    """Return the memory that files in this folder, which is in memory, may still use:
    the least of the file system's, the machine's and the job's limits. Raises:
    OSError."""
    disk = os.statvfs(folder)
    limits = [disk.f_bavail * disk.f_frsize]
    with suppress(OSError, ValueError, IndexError):
        limits.append(_available_bytes(Path("/proc/meminfo").read_text()))
    with suppress(OSError, ValueError, IndexError):
        name = Path("/proc/self/cgroup").read_text().split("::")[1].strip()
        group = _GROUPS / name.lstrip("/")
        limit = int((group / "memory.max").read_text())
        limits.append(max(0, limit - int((group / "memory.current").read_text())))
    return min(limits)


def _available_bytes(text: str) -> int:
    line = next(line for line in text.splitlines() if line.startswith("MemAvailable:"))
    return 1024 * int(line.split()[1])
