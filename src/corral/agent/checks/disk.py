"""Disk check: write and sync a bounded, unlinked file, then read it back and compare
it."""

import os
import time
import zlib
from statistics import median
from typing import Final

from corral.agent.checks.messages import BYTES_PER_SECOND, CheckFinding
from corral.agent.checks.rates import rate_text
from corral.domain.active_checks import CheckKind

CHUNK_BYTES: Final = 4 * 1024 * 1024
MOST_BYTES: Final = 256 * 1024 * 1024
MOST_SHARED_BYTES: Final = 64 * 1024 * 1024  # many nodes may write there at once
SYNCS: Final = 16
# how busy others keep it is not this node's doing
SHARED: Final = f"{BYTES_PER_SECOND} shared"
SYNC_BYTES: Final = 4096


def check_disk(path: str, seconds: float, *, own: bool) -> CheckFinding:
    """Measure the disk's write rate with fsync, in bytes/s; the text of the finding has
    the other results. A disk that cannot be written or read yields a failed finding.

    Args:
        own: whether the disk belongs to this node alone.
    """
    try:
        return _measure_disk(path, seconds, own)
    except OSError as trouble:
        text = f"a test file in {path} cannot be written or read: {trouble.strerror or trouble}"
        return CheckFinding(kind=CheckKind.DISK, device=path, text=text, failed=True)


def _measure_disk(path: str, seconds: float, own: bool) -> CheckFinding:
    room = os.statvfs(path)
    max_bytes = MOST_BYTES if own else MOST_SHARED_BYTES
    size = (
        min(max_bytes, room.f_bavail * room.f_frsize // 10) // CHUNK_BYTES * CHUNK_BYTES
    )
    if size == 0:
        test_size = f"{CHUNK_BYTES // 1024**2} MiB"
        text = f"{path} has no space for a test file of {test_size}"
        return CheckFinding(kind=CheckKind.DISK, device=path, text=text, ran=False)
    descriptor = _open_unlinked_file(path)
    try:
        wrote, checksum, write_seconds = _write_test_file(descriptor, size, seconds)
        read_checksum, read_seconds = _read_test_file(descriptor, wrote)
        sync_seconds = _median_sync_seconds(descriptor, wrote, seconds)
    finally:
        os.close(descriptor)
    if checksum != read_checksum:
        text = f"data read from {path} differs from the data that was written"
        return CheckFinding(kind=CheckKind.DISK, device=path, text=text, failed=True)
    text = (
        f"{path} writes {rate_text(wrote / write_seconds)}, reads {rate_text(wrote / read_seconds)}"
        f", a sync takes {sync_seconds * 1e3:.1f} ms"
    )
    value = wrote / write_seconds
    return CheckFinding(
        kind=CheckKind.DISK,
        device=path,
        text=text,
        value=value,
        unit=BYTES_PER_SECOND if own else SHARED,
    )


def _open_unlinked_file(path: str) -> int:
    """Return a descriptor of a new file that disappears when it is closed, even if the
    process is killed."""
    try:
        return os.open(path, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:  # not every file system can
        name = os.path.join(path, f".corral-check-{os.getpid()}")
        descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        os.unlink(name)
        return descriptor


def _write_test_file(
    descriptor: int, size: int, seconds: float
) -> tuple[int, int, float]:
    """Write the test file. Return the bytes written, their checksum, and the seconds
    until they were on the disk."""
    block = os.urandom(CHUNK_BYTES)  # what compresses well would measure something else
    checksum = wrote = 0
    spent = 0.0
    while wrote < size and spent < seconds:
        chunk = wrote.to_bytes(8, "little") + block[8:]
        checksum = zlib.crc32(chunk, checksum)
        began = time.monotonic()
        done = 0
        while done < len(chunk):
            done += os.pwrite(descriptor, chunk[done:], wrote + done)
        spent += time.monotonic() - began
        wrote += len(chunk)
    began = time.monotonic()
    os.fsync(descriptor)
    return wrote, checksum, spent + time.monotonic() - began


def _read_test_file(descriptor: int, size: int) -> tuple[int, float]:
    """Read the test file back. Return the checksum of its content and the seconds that
    reading took, bypassing the page cache where possible."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    checksum, spent = 0, 0.0
    for offset in range(0, size, CHUNK_BYTES):
        began = time.monotonic()
        chunk = os.pread(descriptor, CHUNK_BYTES, offset)
        spent += time.monotonic() - began
        checksum = zlib.crc32(chunk, checksum)
    return checksum, max(spent, 1e-9)


def _median_sync_seconds(descriptor: int, at: int, seconds: float) -> float:
    """Return the median duration of several small writes, each followed by a sync."""
    took: list[float] = []
    while len(took) < SYNCS and sum(took) < seconds:
        began = time.monotonic()
        os.pwrite(descriptor, b"\0" * SYNC_BYTES, at)
        os.fsync(descriptor)
        took.append(time.monotonic() - began)
    return median(took)
