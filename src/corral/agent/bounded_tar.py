"""Read a tar stream from an untrusted source, with a bound on each resource it can
use."""

import errno
import gzip
import os
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from corral.domain.units import share_text

# at once: a header that asks for more is an attack
MOST_READ_BYTES: Final = 4 * 1024**2
CHUNK_BYTES: Final = 1024**2
# how much is written between two looks at the disk
DISK_LOOK_BYTES: Final = 64 * 1024**2
DISK_RESERVE: Final = 0.02  # this share of a disk stays free for others
BROKEN: Final = (
    tarfile.TarError,
    EOFError,
    zlib.error,
    ValueError,
    ArithmeticError,
    LookupError,
    RecursionError,
    TypeError,
    AttributeError,
    gzip.BadGzipFile,
)

BY_CONTENT: Final = (  # errors of the kernel that another archive would not have
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EINVAL,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EMLINK,
    errno.EILSEQ,
    errno.ENOENT,
    errno.ENOTEMPTY,
)


class BadArchive(Exception):
    """The archive cannot be read, or holds more than is allowed."""


class BoundsExceeded(BadArchive):
    """The archive may be valid, but it exceeds the limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackLimits:
    """Limits for unpacking one archive. `members`, `bytes`: totals; `seconds`: wall
    clock time."""

    members: int
    bytes: int
    seconds: float
    path_bytes: int = 4096
    depth: int = 256


class Readable(Protocol):
    """Interface: a byte stream."""

    def read(self, size: int = ..., /) -> bytes: ...

    def close(self) -> None: ...


class BoundedReader:
    """A stream that is only read forward, in small pieces and until a deadline.

    It has the methods that `tarfile` needs of a file: read, seek, tell and close.
    """

    def __init__(self, stream: Readable, bounds: UnpackLimits) -> None:
        self._stream = stream
        self._position = 0
        self._deadline = time.monotonic() + bounds.seconds
        self._seconds = bounds.seconds

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MOST_READ_BYTES:
            raise BadArchive(f"a header in it requests {size} bytes at once")
        self.check_time()
        pieces = []
        while size and (piece := self._stream.read(size)):
            pieces.append(piece)
            size -= len(piece)
            self._position += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def seek(self, position: int) -> int:
        if position < self._position:
            raise BadArchive("a header in it points backwards")
        while self._position < position:
            if not self.read(min(position - self._position, CHUNK_BYTES)):
                break
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self._stream.close()

    def check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise BoundsExceeded(f"unpacking takes over {self._seconds:g} s")


def unpack_members(
    stream: Readable,
    bounds: UnpackLimits,
    place: Callable[[tarfile.TarInfo, "Content"], None],
    *,
    disk: int,
) -> tuple[int, int]:
    """Call `place` for each member of the tar stream, which writes the member. Return
    the number of members and the bytes of their content.

    Args:
        disk: a descriptor of the target folder, whose disk must not fill up.

    Raises: BadArchive when the archive is not allowed or broken; OSError when the disk
    or the stream fails.
    """
    reader = BoundedReader(stream, bounds)
    number, size_bytes = 0, 0
    content = Content(reader, disk)
    for member in _iterate_members(reader):
        number += 1
        if member.size < 0 or member.sparse is not None:
            raise BadArchive(
                f"{member.name[:200]!r} is a sparse file or has a negative size"
            )
        size_bytes += member.size
        if number > bounds.members or size_bytes > bounds.bytes:
            raise BoundsExceeded(
                f"the archive has over {bounds.members} files or over "
                f"{bounds.bytes} bytes"
            )
        content.of(member)
        try:
            place(member, content)
        except BROKEN as wrong:
            raise BadArchive(f"{member.name[:200]!r}: {wrong}") from wrong
        except OSError as trouble:
            if trouble.errno not in BY_CONTENT:
                raise
            raise BadArchive(f"{member.name[:200]!r}: {trouble.strerror}") from trouble
    return number, size_bytes


def _iterate_members(reader: BoundedReader) -> Iterator[tarfile.TarInfo]:
    """Iterate over the members of a tar stream without keeping them in memory, as
    `tarfile` would."""
    try:
        with tarfile.open(fileobj=reader, mode="r:") as archive:  # type: ignore[call-overload]
            while (member := archive.next()) is not None:
                yield member
                archive.members.clear()
    except BROKEN as wrong:
        raise BadArchive(f"the archive cannot be read: {wrong}") from wrong


class Content:
    """The content of the member that is being read."""

    def __init__(self, reader: BoundedReader, disk: int) -> None:
        self._reader = reader
        self._disk = disk
        self._member = tarfile.TarInfo()
        self._until_look_bytes = 0

    def of(self, member: tarfile.TarInfo) -> None:
        self._member = member

    def write_to(self, target: int) -> None:
        """Write the whole content of the member to a file descriptor.

        Raises: BadArchive when the content is cut short; OSError when the disk fails.
        """
        self._reader.seek(self._member.offset_data)
        left_bytes = self._member.size
        while left_bytes:
            data = self._reader.read(min(left_bytes, CHUNK_BYTES))
            if not data:
                raise BadArchive(
                    f"the archive ends within the file {self._member.name[:200]!r}"
                )
            self._check_disk(len(data))
            left_bytes -= len(data)
            view = memoryview(data)
            while view:
                view = view[os.write(target, view) :]

    def _check_disk(self, size_bytes: int) -> None:
        self._until_look_bytes -= size_bytes
        if self._until_look_bytes > 0:
            return
        self._until_look_bytes = DISK_LOOK_BYTES
        disk_stat = os.fstatvfs(self._disk)
        if (
            disk_stat.f_bavail * disk_stat.f_frsize
            < DISK_RESERVE * disk_stat.f_blocks * disk_stat.f_frsize
        ):
            free_bytes = disk_stat.f_bavail * disk_stat.f_frsize
            raise BadArchive(
                f"the node's disk is nearly full: {free_bytes} bytes are free, and "
                f"{share_text(DISK_RESERVE)} of the disk must stay free"
            )


def path_parts(name: str, bounds: UnpackLimits) -> list[str]:
    """Split a member's path into its parts: its folders and its file name.

    Raises: BadArchive when the path leads outside the target folder or is too long.
    """
    path_segments = [segment for segment in name.split("/") if segment not in ("", ".")]
    if ".." in path_segments or "\0" in name:
        raise BadArchive(f"the path {name[:200]!r} leads out of the target folder")
    if len(os.fsencode(name)) > bounds.path_bytes or len(path_segments) > bounds.depth:
        raise BadArchive(
            f"the path {name[:200]!r} has over {bounds.path_bytes} bytes or "
            f"over {bounds.depth} folders"
        )
    if any(len(os.fsencode(segment)) > 255 for segment in path_segments):
        raise BadArchive(
            f"the path {name[:200]!r} has a component that is longer than 255 bytes"
        )
    return path_segments
