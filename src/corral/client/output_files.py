"""Writing of received outputs to this machine. The outputs arrive as a tar stream, and
nothing is written outside of the requested folder.

The sender of the stream may be hostile: only files and folders are accepted, no name
may lead out of the folder, and existing links are not followed. A file gets its name
only when it is complete.
"""

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.domain.errors import Conflict, Trouble

COPY_BYTES: Final = 1024 * 1024


class OutputUnsafe(Trouble):
    """The error for a stream that contains entries that Corral never sends, or that
    ends early."""

    code = "output_unsafe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Result of a fetch. `path`: the file, or the folder with the files."""

    path: Path
    files: int
    bytes: int


class _Pieces(io.RawIOBase):
    """File object that reads the byte chunks of a stream, only forward, so that tarfile
    can read them."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def write_outputs(pieces: Iterator[bytes], path: str, to: Path) -> Fetched:
    """Write the received tar stream to `to`. `pieces` are its byte chunks; `path` is
    the file or folder that was requested.

    Raises: OutputUnsafe if the stream is incomplete or holds unsafe entries; Conflict
    if `to` cannot be written; the errors of the stream.
    """
    name = next(
        (
            path_segment
            for path_segment in reversed(path.split("/"))
            if path_segment not in ("", ".")
        ),
        "",
    )
    try:
        with tarfile.open(
            fileobj=io.BufferedReader(_Pieces(pieces), COPY_BYTES), mode="r|"
        ) as tar:
            first_member = tar.next()
            if first_member is None:
                raise OutputUnsafe("the answer of the head contains no file")
            if first_member.isdir():
                root = to / name if name and to.is_dir() else to
                return _write_folder(tar, root)
            target = to / name if to.is_dir() else to
            size = _write_file(tar, first_member, target)
            return Fetched(path=target, files=1, bytes=size)
    except (tarfile.TarError, EOFError) as wrong:
        raise OutputUnsafe(f"the answer of the head is incomplete: {wrong}") from None
    except OSError as trouble:
        raise Conflict(
            f"{to} cannot be written: {trouble}", hint="choose another destination"
        ) from None


def _write_folder(tar: tarfile.TarFile, root: Path) -> Fetched:
    root.mkdir(parents=True, exist_ok=True)
    files = size = 0
    while (member := tar.next()) is not None:
        target = _safe_member_path(root, member.name)
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        size += _write_file(tar, member, target)
        files += 1
        tar.members = []  # type: ignore[attr-defined]  # it would keep them all
    return Fetched(path=root, files=files, bytes=size)


def _safe_member_path(root: Path, name: str) -> Path:
    """Return the path to which a member of the archive is written.

    Raises: OutputUnsafe if the path leads out of `root`, or through a link.
    """
    path_segments = [
        path_segment
        for path_segment in name.split("/")
        if path_segment not in ("", ".")
    ]
    if name.startswith("/") or ".." in path_segments or not path_segments:
        raise OutputUnsafe(
            f"the received file {name[:200]!r} would be written outside of {root}"
        )
    member_path = root
    for folder_name in path_segments[:-1]:
        member_path = member_path / folder_name
        if member_path.is_symlink():
            raise OutputUnsafe(
                f"{member_path} is a symbolic link: files are not written through links"
            )
    return member_path / path_segments[-1]


def _write_file(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> int:
    """Write one file completely, or leave an existing file unchanged. Return the size
    in bytes.

    Raises: OutputUnsafe, OSError.
    """
    content = tar.extractfile(member) if member.isreg() else None
    if content is None:
        raise OutputUnsafe(
            f"the received entry {member.name[:200]!r} is neither a file nor a folder"
        )
    partial_path = target.with_name(f".{target.name}.part")
    size = 0
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(partial_path, flags, 0o600), "wb") as file:
            while data := content.read(COPY_BYTES):
                size += file.write(data)
        if size != member.size:
            raise OutputUnsafe(
                f"only {size} of {member.size} bytes of {member.name[:200]!r} arrived"
            )
        umask = os.umask(0)
        os.umask(umask)
        partial_path.chmod(member.mode & 0o777 & ~umask | 0o600)
        os.utime(partial_path, (member.mtime, member.mtime))
        partial_path.rename(target)
    finally:
        with suppress(OSError):
            partial_path.unlink(missing_ok=True)
    return size
