"""Files of users on the head's disk. A file is either complete or absent."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from corral.api.request_body import too_large
from corral.domain.batch import FileId

PART: str = ".part"


class FileShelf:
    """Files of a folder, by their ids."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, id: FileId) -> Path:
        """Return the path of a file, which need not exist."""
        return self.root / id

    async def put(
        self,
        id: FileId,
        pieces: AsyncIterator[bytes],
        fresh_id: str,
        *,
        most_bytes: int,
    ) -> int:
        """Write the bytes to disk, and return their number. A file with this id is
        replaced at once. `fresh_id` names the temporary file.

        Raises: TooLarge, OSError, and what `pieces` raises.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        part_path = self.root / f"{fresh_id}{PART}"
        size = 0
        try:
            with part_path.open("xb") as file:
                async for piece in pieces:
                    size += len(piece)
                    if size > most_bytes:
                        raise too_large(most_bytes)
                    file.write(piece)
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
            os.replace(part_path, self.path(id))
        finally:
            part_path.unlink(missing_ok=True)
        await asyncio.to_thread(_sync_folder, self.root)
        return size

    def remove(self, id: FileId) -> None:
        """Remove a file, if it is there. Raises: OSError."""
        self.path(id).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
