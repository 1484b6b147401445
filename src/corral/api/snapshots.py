"""Workdir snapshots on the head's disk. A snapshot is named by its SHA-256 digest; it
is either complete or absent."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from corral.api.errors import RequestInvalid
from corral.api.request_body import too_large
from corral.domain.errors import NotFound
from corral.wire.field_readers import is_digest


class Snapshots:
    """Store of the files `<root>/<sha256>.tar.gz`. The mtime of a file is the time of
    its last request."""

    def __init__(self, root: Path, *, most_bytes: int) -> None:
        self._root = root
        self.most_bytes = most_bytes

    def path(self, sha256: str) -> Path:
        """Return the path of the snapshot.

        Raises: NotFound if the snapshot is not stored, or `sha256` is not a valid
        digest.
        """
        path = self._root / f"{sha256}.tar.gz"
        if not is_digest(sha256) or not path.is_file():
            raise NotFound("snapshot", sha256[:64])
        return path

    def asked(self, sha256: str) -> int:
        """Return the size of the snapshot, and set its time of last request to now,
        which delays its deletion.

        Raises: NotFound.
        """
        path = self.path(sha256)
        os.utime(path)
        return path.stat().st_size

    def has(self, sha256: str) -> bool:
        try:
            self.asked(sha256)
        except (NotFound, FileNotFoundError):
            return False
        return True

    async def put(
        self,
        sha256: str,
        pieces: AsyncIterator[bytes],
        fresh_id: str,
        *,
        most_bytes: int,
    ) -> int:
        """Store the bytes as a snapshot if their digest is `sha256`, and return their
        size. If the snapshot is stored already, nothing changes. `fresh_id` names the
        temporary file.

        Raises: RequestInvalid if the digest differs or is invalid, TooLarge, OSError,
        and what `pieces` raises.
        """
        if not is_digest(sha256):
            raise RequestInvalid(
                f"{sha256[:80]!r} is not a SHA-256 of 64 hexadecimal digits"
            )
        path = self._root / f"{sha256}.tar.gz"
        if self.has(sha256):
            return path.stat().st_size
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        part_path = self._root / f"{fresh_id}.part"
        try:
            size = await self._write_snapshot(
                part_path, sha256, pieces, min(most_bytes, self.most_bytes)
            )
            os.replace(part_path, path)
        finally:
            part_path.unlink(missing_ok=True)
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return size

    async def _write_snapshot(
        self, part: Path, sha256: str, pieces: AsyncIterator[bytes], most_bytes: int
    ) -> int:
        hasher = hashlib.sha256()
        size = 0
        with part.open("xb") as file:
            async for piece in pieces:
                size += len(piece)
                if size > most_bytes:
                    raise too_large(most_bytes)
                hasher.update(piece)
                file.write(piece)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())  # seconds, of a slow disk
        if hasher.hexdigest() != sha256:
            raise RequestInvalid(
                f"the received snapshot has the SHA-256 {hasher.hexdigest()[:12]}..., not "
                f"{sha256[:12]}...",
                hint="send the snapshot again",
            )
        return size
