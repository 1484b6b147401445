"""Durable writing of the files of a save into a directory."""

import hashlib
import os
from pathlib import Path
from typing import Final

from corral.train.save.bandwidth import bucket_of
from corral.train.save.manifest import FileEntry, digest

WRITE_BYTES: Final = 4 * 1024 * 1024
ALIGN_BYTES: Final = 64


class HashedFile:
    """A file that is hashed while it is written, at most at this rate."""

    def __init__(self, path: Path, bytes_per_second: float | None = None) -> None:
        self.path = path
        self._cap = None if bytes_per_second is None else bucket_of(bytes_per_second)
        self.size = 0
        self._hasher = hashlib.sha256()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    @property
    def name(self) -> str:
        return self.path.name

    def append(self, data: memoryview) -> int:
        """Write the bytes at the next aligned position of the file, and return this
        position."""
        self._write_and_hash(memoryview(bytes(-self.size % ALIGN_BYTES)))
        offset = self.size
        for start in range(0, len(data), WRITE_BYTES):
            self._write_and_hash(data[start : start + WRITE_BYTES])
        return offset

    def _write_and_hash(self, data: memoryview) -> None:
        if self._cap is not None:
            self._cap.take(len(data))
        _write_all(self._descriptor, data)
        self._hasher.update(data)
        self.size += len(data)

    def finish(self) -> FileEntry:
        os.fsync(self._descriptor)
        self.close()
        sha256 = self._hasher.hexdigest()
        return FileEntry(name=self.path.name, size_bytes=self.size, sha256=sha256)

    def close(self) -> None:
        os.close(self._descriptor)


def write_whole(path: Path, data: bytes) -> FileEntry:
    """Write a small file and make its contents durable. Return its entry for the
    manifest."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        _write_all(descriptor, memoryview(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return FileEntry(name=path.name, size_bytes=len(data), sha256=digest(data))


def sync_directory(path: Path) -> None:
    """Sync a directory, so that its file names are durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
