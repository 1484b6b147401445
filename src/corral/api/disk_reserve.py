"""Free space on the disks of the head: a reserve is kept for the head's own data."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from corral.domain.errors import Refusal
from corral.domain.units import size_text

LEAST_RESERVE_BYTES: Final = 1000**3
RESERVED_PART: Final = 0.02  # of the disk, where no other reserve was set
LOOK_SECONDS: Final = 1.0  # free space is asked for no more often


class Room(NamedTuple):
    """Sizes of a disk in bytes: free and total."""

    free: int
    total: int


def room_of(folder: Path) -> Room:
    """Return the free and total bytes of the disk that holds the folder, or the nearest
    existing folder above it.

    Raises: OSError.
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    disk = shutil.disk_usage(folder)
    return Room(disk.free, disk.total)


class DiskLow(Refusal):
    """The head's disk has no more free space than the head itself needs."""

    code = "disk_low"


@dataclass(slots=True, kw_only=True)
class DiskGuard:
    """Guard that refuses writes which would use the reserve of free space on the head's
    disks. `reserve_bytes` None: 2 % of the disk, and at least 1 GB."""

    reserve_bytes: int | None
    monotonic: Callable[[], float]
    room: Callable[[Path], Room] = room_of
    _looked: dict[Path, tuple[float, Room]] = field(default_factory=dict)

    def reserve(self, room: Room) -> int:
        """Return how many bytes of this disk are reserved."""
        if self.reserve_bytes is not None:
            return self.reserve_bytes
        return max(LEAST_RESERVE_BYTES, int(RESERVED_PART * room.total))

    def look(self, folder: Path) -> Room:
        """Return the disk's free and total bytes, at most one second old. Raises:
        OSError."""
        now = self.monotonic()
        checked_at, room = self._looked.get(folder, (float("-inf"), Room(0, 0)))
        if now - checked_at >= LOOK_SECONDS:
            room = self.room(folder)
            self._looked[folder] = (now, room)
        return room

    def forget(self) -> None:
        """Drop the cached disk sizes, so that the next check queries the disks again."""
        self._looked.clear()

    def room_now(self, folder: Path) -> Room | None:
        """Return the disk's free and total bytes, at most one second old; None if the
        disk cannot be queried."""
        try:
            return self.look(folder)
        except OSError:
            return None

    def is_low(self, folder: Path, asked_bytes: int = 0) -> bool:
        """Return whether `asked_bytes` more would use a part of the reserve. A disk
        that cannot be queried does not count as low."""
        room = self.room_now(folder)
        return room is not None and room.free - asked_bytes < self.reserve(room)

    def check(self, folder: Path, what: str, asked_bytes: int) -> None:
        """Check that writing `asked_bytes` more leaves the reserve free. `what`: the
        thing to write, for the error text. Raises: DiskLow."""
        if not self.is_low(folder, asked_bytes):
            return
        room = self.look(folder)
        raise DiskLow(
            f"the head's disk has too little space for {what} ({size_text(asked_bytes)}): "
            f"{size_text(room.free)} of {size_text(room.total)} are free, and "
            f"{size_text(self.reserve(room))} are reserved for the head itself",
            hint=f"ask an operator to free space on the disk of {folder}, or to reserve less: "
            "corral up --disk-reserve 500MB",
        )

    def warning(self, folder: Path) -> str:
        """Return a warning while the disk is low or cannot be read; else ""."""
        try:
            room = self.look(folder)
        except OSError as error:
            return f"the free space of the disk of {folder} cannot be read: {error.strerror}"
        reserve = self.reserve(room)
        if room.free >= reserve:
            return ""
        return (
            f"the disk of {folder} is nearly full ({size_text(room.free)} of "
            f"{size_text(room.total)} free, {size_text(reserve)} are reserved for the head): "
            "uploads, logs and large specs are refused; free space there"
        )
