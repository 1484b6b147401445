"""Traversal of a work folder without following a link or leaving the folder.

Ranks own the folder and may change it at any moment, so each step starts from an open
folder.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from corral.domain.outputs import MOST_LISTED, OutputFile, OutputListing

MOST_WALKED: Final = 200_000
WALK_SECONDS: Final = 20.0
DEEPEST: Final = 100
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, link or folder. `parent` is the descriptor of its parent folder, which is
    open."""

    path: str
    name: str
    parent: int
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    def is_changed(self, since_ns: int) -> bool:
        """Return whether the entry was created or changed since that time. No program
        can set a change time (ctime) back."""
        return self.status.st_ctime_ns >= since_ns


def walk(folder: int, path: str = "", depth: int = 0) -> Iterator[Entry]:
    """Iterate over all entries below the open folder, each folder after its content.
    Entries that disappear are skipped."""
    with suppress(OSError), os.scandir(folder) as scandir_iterator:
        for dir_entry in scandir_iterator:
            with suppress(OSError):
                status = os.stat(dir_entry.name, dir_fd=folder, follow_symlinks=False)
                entry = Entry(f"{path}{dir_entry.name}", dir_entry.name, folder, status)
                if entry.is_folder and depth < DEEPEST:
                    yield from _walk_inner(entry, depth)
                yield entry


def _walk_inner(entry: Entry, depth: int) -> Iterator[Entry]:
    inner = os.open(entry.name, FOLDER, dir_fd=entry.parent)
    try:
        yield from walk(inner, f"{entry.path}/", depth + 1)
    finally:
        os.close(inner)


def list_written(work: Path, since_ns: int) -> OutputListing:
    """List the files of the folder that its attempt wrote.

    Raises: OSError when the folder cannot be opened.
    """
    files: list[OutputFile] = []
    count = size = 0
    deadline = time.monotonic() + WALK_SECONDS
    folder = os.open(work, FOLDER)
    is_whole = True
    try:
        for number, entry in enumerate(walk(folder)):
            if number >= MOST_WALKED or time.monotonic() > deadline:
                is_whole = False
                break
            if entry.is_file and entry.is_changed(since_ns):
                count += 1
                size += entry.status.st_size
                if len(files) < MOST_LISTED:
                    name = entry.path.encode(errors="replace").decode()
                    files.append(
                        OutputFile(name, entry.status.st_size, entry.status.st_mtime)
                    )
    finally:
        os.close(folder)
    files.sort()
    return OutputListing(files=tuple(files), count=count, bytes=size, is_whole=is_whole)


def has_files(work: Path) -> bool:
    """Return whether the work folder holds any file or folder. Raises: OSError."""
    with os.scandir(work) as entries:
        return next(islice(entries, 1), None) is not None


def sift(work: Path, since_ns: int) -> int | None:
    """Remove files that came with the workdir and were not changed, and folders that
    are then empty.

    Returns: the bytes on disk of the remaining files; None where no file is left.

    Raises: OSError when the folder cannot be opened.
    """
    used_bytes = unchanged = 0
    folder = os.open(work, FOLDER)
    try:
        for entry in walk(folder):
            with suppress(OSError):
                if entry.is_folder:
                    os.rmdir(entry.name, dir_fd=entry.parent)
                elif not entry.is_changed(since_ns):
                    os.unlink(entry.name, dir_fd=entry.parent)
                elif entry.is_file:
                    unchanged += 1
                    used_bytes += entry.status.st_blocks * 512
    finally:
        os.close(folder)
    return used_bytes if unchanged else None
