"""The machine's own sensors: CPU, memory, pressure, disks. Paths are below a root, for
tests."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corral.domain.telemetry import DiskSample

_KIB: Final = 1024
# fields of /proc/stat; guests are counted in user time
_IDLE, _IOWAIT, _OF_A_CPU = 3, 4, 8


@dataclass(slots=True)
class Cpu:
    """Sensor for the share of all CPUs' time that was used since the previous reading.
    The first reading gives None.

    Source: proc_stat(5).
    """

    stat: Path
    _last: tuple[int, int] | None = None

    def read(self) -> float | None:
        ticks = _read_cpu_ticks(self.stat)
        previous_ticks, self._last = self._last, ticks
        if ticks is None or previous_ticks is None or ticks[1] <= previous_ticks[1]:
            return None
        return min(
            1.0,
            max(0.0, (ticks[0] - previous_ticks[0]) / (ticks[1] - previous_ticks[1])),
        )


def _read_cpu_ticks(stat: Path) -> tuple[int, int] | None:
    """Return the CPU ticks that were used and all ticks; None if they cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        stat_fields = stat.read_text().partition("\n")[0].split()
        ticks = [int(tick_text) for tick_text in stat_fields[1 : 1 + _OF_A_CPU]]
        return sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT], sum(ticks)
    return None


def memory_bytes(meminfo: Path) -> tuple[int | None, int | None]:
    """Return the used memory (what cannot be given to a program now) and the total
    memory, in bytes. Source: proc_meminfo(5)."""
    sizes: dict[str, int] = {}
    with suppress(OSError, ValueError, IndexError):
        for line in meminfo.read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                sizes[name] = int(rest.split()[0]) * _KIB
    total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
    return (None if total is None or available is None else total - available), total


def pressure(file: Path) -> float | None:
    """Return the share of the last 10 s in which at least one task waited for the
    resource; None where the kernel does not report it.

    Source: Linux, Documentation/accounting/psi.rst.
    """
    with suppress(OSError, ValueError, StopIteration):
        some_line = next(
            line for line in file.read_text().splitlines() if line.startswith("some ")
        )
        pressure_fields = dict(
            field_text.split("=", 1) for field_text in some_line.split()[1:]
        )
        return float(pressure_fields["avg10"]) / 100
    return None


def disk(path: str) -> DiskSample:
    """Return size and free space of the file system that holds the path, and whether it
    is read-only. The call may hang. Raises: OSError when the path does not exist."""
    disk_stat = os.statvfs(path)
    return DiskSample(
        path=path,
        total_bytes=disk_stat.f_blocks * disk_stat.f_frsize,
        free_bytes=disk_stat.f_bavail * disk_stat.f_frsize,
        read_only=bool(disk_stat.f_flag & os.ST_RDONLY),
    )


@dataclass(slots=True)
class MachineSensors:
    """Sensors of the machine that need no driver and do not hang."""

    root: Path
    cpu: Cpu = field(init=False)

    def __post_init__(self) -> None:
        self.cpu = Cpu(self.root / "proc/stat")

    def memory(self) -> tuple[int | None, int | None]:
        return memory_bytes(self.root / "proc/meminfo")

    def pressure(self, of: str) -> float | None:
        """Return the share of time in which tasks waited for the resource `of`: cpu,
        memory or io."""
        return pressure(self.root / "proc/pressure" / of)
