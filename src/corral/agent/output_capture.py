"""A rank's output: kept in rotated files with a rate limit and a size limit, and read
by a running offset.

The offset counts every byte that was ever kept, including bytes that rotation has since
removed. `rank-3.log.at` has the offset at which each file begins; without this file the
offset is 0.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

MEGABYTE: Final = 1024 * 1024
KEPT_BYTES: Final = 64 * MEGABYTE  # of a rank, in two files
BURST_BYTES: Final = 32 * MEGABYTE
BYTES_PER_SECOND: Final = 16 * MEGABYTE
_RESUME_BYTES: Final = 4 * MEGABYTE  # after a drop this much must be allowed again
_TOO_FAST: Final = f"the rank wrote more than {BYTES_PER_SECOND // MEGABYTE} MB/s"


class RankLog:
    """Writer of one rank's log, with bounded memory use. If output is dropped, the log
    says so."""

    def __init__(
        self, file: Path, now: Callable[[], float], *, kept_bytes: int = KEPT_BYTES
    ) -> None:
        """Open the log to append.

        Raises: OSError when the file cannot be made.
        """
        self._file = file
        self._now = now
        self._segment_bytes = kept_bytes // 2
        self._descriptor = _open_for_append(file)
        self._begin = 0  # offset of the first byte of the current file
        self._size_bytes = 0
        self._allowed_bytes = float(BURST_BYTES)
        self._allowed_at = now()
        self._dropped_bytes = 0
        self._why_dropped = ""

    def write(self, data: bytes) -> None:
        """Write as much of the data as the limits allow. A full disk raises no error:
        the data counts as dropped."""
        self._refill_allowance()
        if self._dropped_bytes:
            if self._allowed_bytes < _RESUME_BYTES:
                self._dropped_bytes += len(data)
                return
            self._say_dropped()
        kept_data = data[: max(0, int(self._allowed_bytes))]
        self._allowed_bytes -= len(kept_data)
        if len(kept_data) < len(data):
            self._count_dropped_bytes(len(data) - len(kept_data), _TOO_FAST)
        self._keep(kept_data)

    def say(self, sentence: str) -> None:
        """Write a line of Corral's own to the log. The limits do not apply to it."""
        self._keep(f"[corral] {sentence}\n".encode())

    def last_bytes(self, most: int) -> bytes:
        """Return at most `most` bytes from the end of the log file; b"" where the disk
        does not answer."""
        try:
            with self._file.open("rb") as opened:
                opened.seek(max(0, opened.seek(0, os.SEEK_END) - most))
                return opened.read(most)
        except OSError:
            return b""

    def room_bytes(self) -> int:
        """Return the bytes that an ordinary account may still write to the log's disk.

        Raises: OSError where the disk does not answer.
        """
        disk = os.fstatvfs(self._descriptor)
        return disk.f_bavail * disk.f_frsize

    def close(self) -> None:
        if self._dropped_bytes:
            self._say_dropped()
        os.close(self._descriptor)

    def _refill_allowance(self) -> None:
        now = self._now()
        gained = (now - self._allowed_at) * BYTES_PER_SECOND
        self._allowed_bytes = min(BURST_BYTES, self._allowed_bytes + gained)
        self._allowed_at = now

    def _count_dropped_bytes(self, count: int, why: str) -> None:
        self._dropped_bytes += count
        self._why_dropped = why

    def _say_dropped(self) -> None:
        count, self._dropped_bytes = self._dropped_bytes, 0
        self._keep(
            f"\n[corral] {count} bytes were dropped here: {self._why_dropped}\n".encode()
        )

    def _keep(self, data: bytes) -> None:
        while data:
            if self._size_bytes >= self._segment_bytes and not self._rotate_file():
                return self._count_dropped_bytes(
                    len(data), "the log file could not be rotated"
                )
            chunk = data[: self._segment_bytes - self._size_bytes]
            try:
                written = os.write(self._descriptor, chunk)
            except OSError as trouble:
                return self._count_dropped_bytes(len(data), f"{trouble.strerror}")
            self._size_bytes += written
            data = data[written:]

    def _rotate_file(self) -> bool:
        """Begin a new log file, and return whether this succeeded. A reader can find
        the offset of every file at any moment, by the file's inode."""
        new_log = self._file.with_suffix(".log.new")
        begin = self._begin + self._size_bytes
        try:
            new_log.unlink(missing_ok=True)
            descriptor = _open_for_append(new_log)
            begins = {
                str(os.fstat(descriptor).st_ino): begin,
                str(os.fstat(self._descriptor).st_ino): self._begin,
            }
            marks = self._file.with_suffix(".log.at.new")
            marks.write_text(json.dumps(begins))
            marks.rename(_offsets_file(self._file))
            self._file.rename(_rotated_file(self._file))
            new_log.rename(self._file)
        except OSError:
            return False
        os.close(self._descriptor)
        self._descriptor, self._begin, self._size_bytes = descriptor, begin, 0
        return True


def read(file: Path, offset: int, max_bytes: int) -> tuple[int, bytes]:
    """Return bytes of a log from `offset`, and the offset at which they begin; that is
    later than `offset` if rotation has removed bytes. If no bytes are returned, the log
    has not grown beyond `offset`.

    Raises: OSError other than for a missing file.
    """
    if offset < 0 or max_bytes < 0:
        raise ValueError(f"a negative offset or size: {offset}, {max_bytes}")
    # a rotation in between is seen as a file that ends early: look again
    for _ in range(3):
        for candidate in (_rotated_file(file), file):
            begin, data = _read_from(candidate, file, offset, max_bytes)
            if data:
                return begin, data
        if not _rotated_file(file).exists():
            break
    return offset, b""


def end(file: Path) -> int:
    """Return the log's offset after its last byte; 0 without a log."""
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
    except FileNotFoundError:
        return 0
    return (_begin(file, status.st_ino) or 0) + status.st_size


def _read_from(
    candidate: Path, file: Path, offset: int, max_bytes: int
) -> tuple[int, bytes]:
    try:
        descriptor = os.open(candidate, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return offset, b""
    try:
        begin = _begin(file, os.fstat(descriptor).st_ino)
        if begin is None:
            return offset, b""
        read_offset = max(begin, offset)
        return read_offset, os.pread(descriptor, max_bytes, read_offset - begin)
    finally:
        os.close(descriptor)


def _begin(file: Path, inode: int) -> int | None:
    """Return the offset at which the file with this inode begins; 0 if no offsets are
    recorded; None for a file that is being rotated out."""
    try:
        begin = json.loads(_offsets_file(file).read_text()).get(str(inode))
    except FileNotFoundError:
        return 0
    return None if begin is None else int(begin)


def _rotated_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.1")


def _offsets_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.at")


def _open_for_append(file: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    return os.open(file, flags, 0o600)
