"""Check whether the disk of a node has room for another attempt. No attempt can start
on a full disk."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LEAST_BYTES: Final = 2 * 1024 * 1024
LEAST_FILES: Final = 32
ENOUGH: Final = 4  # times the least, until the node takes work again
FULL: Final = "its disk is full"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRoom:
    """Free space on a disk for accounts other than root. `files` is the number of files
    that can still be created; None if the disk has no such limit."""

    bytes: int
    files: int | None


def room_at(path: Path) -> DiskRoom:
    """Return the free space on the disk that holds this path. Raises: OSError."""
    disk_stat = os.statvfs(path)
    files = disk_stat.f_favail if disk_stat.f_files else None
    return DiskRoom(bytes=disk_stat.f_bavail * disk_stat.f_frsize, files=files)


def closed_by(room: DiskRoom, *, is_closed: bool) -> str:
    """Return the reason why the node takes no new attempts; "" if the disk has enough
    room. `is_closed`: the node takes none at present. A closed node needs more free
    space to open again than an open node needs to stay open, so that its state does not
    change with each small file."""
    factor = ENOUGH if is_closed else 1
    has_bytes = room.bytes >= factor * LEAST_BYTES
    has_files = room.files is None or room.files >= factor * LEAST_FILES
    return "" if has_bytes and has_files else FULL
