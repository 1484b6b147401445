"""The durable record of an attempt on a node: one JSON object a line, each with its
checksum.

Disk space is reserved when the file is created, so that exits can still be written on a
full disk; unused space reads as zeros. An incomplete line ends the journal: it was
being written when the machine stopped.
"""

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

FILE: Final = "journal.jsonl"
RESERVE_BYTES: Final = 16 * 1024
Record = dict[str, Any]
_JSON: Final = json.JSONEncoder(separators=(",", ":"))


class Journal:
    """Appends records to a journal; once `append` returns, they are on the disk."""

    def __init__(self, descriptor: int, used_bytes: int, size_bytes: int) -> None:
        self._descriptor = descriptor
        self._used_bytes = used_bytes
        self._size_bytes = size_bytes

    @classmethod
    def create(cls, file: Path, reserve_bytes: int = RESERVE_BYTES) -> "Journal":
        """Create the file and reserve its space.

        Raises: FileExistsError when it exists; OSError when the disk is full.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(file, flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, reserve_bytes)
            _sync_folder(file.parent)
        except OSError:
            os.close(descriptor)
            file.unlink()
            raise
        return cls(descriptor, 0, reserve_bytes)

    @classmethod
    def reopen(cls, file: Path) -> "Journal":
        """Open the journal to append after its last complete record.

        Raises: OSError when this fails.
        """
        used_bytes = sum(map(len, _whole_lines(file.read_bytes())))
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        return cls(descriptor, used_bytes, os.fstat(descriptor).st_size)

    def append(self, *records: Mapping[str, Any], keep_bytes: int = 0) -> None:
        """Append records, which are on the disk when this returns. `keep_bytes` of the
        remaining reserved space must stay free.

        Raises: OSError when the disk is full or fails; the journal is then unchanged.
        """
        line = b"".join(map(encode, records))
        needed_bytes = self._used_bytes + len(line) + keep_bytes
        if needed_bytes > self._size_bytes:
            os.posix_fallocate(
                self._descriptor, self._size_bytes, needed_bytes - self._size_bytes
            )
            self._size_bytes = needed_bytes
        written = 0
        while written < len(line):
            written += os.pwrite(
                self._descriptor, line[written:], self._used_bytes + written
            )
        os.fsync(self._descriptor)
        self._used_bytes += len(line)

    def close(self) -> None:
        os.close(self._descriptor)


def encode(record: Mapping[str, Any]) -> bytes:
    """Encode a record as one line: JSON, a tab, and its CRC-32 in hexadecimal."""
    text = _JSON.encode(record).encode()
    return b"%s\t%08x\n" % (text, zlib.crc32(text))


def decode(content: bytes) -> list[Record]:
    """Return the records before the first incomplete line."""
    return [json.loads(line.rpartition(b"\t")[0]) for line in _whole_lines(content)]


def read(file: Path) -> list[Record] | None:
    """Return the records of the journal; None if there is no journal. Raises:
    OSError."""
    try:
        return decode(file.read_bytes())
    except FileNotFoundError:
        return None


def _whole_lines(content: bytes) -> Sequence[bytes]:
    valid_lines = []
    for line in content.splitlines(keepends=True):
        text, tab, check = line.rpartition(b"\t")
        if not tab or check != b"%08x\n" % zlib.crc32(text):
            break
        valid_lines.append(line)
    return valid_lines


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
