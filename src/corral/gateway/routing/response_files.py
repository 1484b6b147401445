"""Files in which the processes of a gateway note which replica keeps a response, so that
each of them, and the one that follows a killed one, can find it."""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

log = logging.getLogger(__name__)

SUFFIX: Final = ".responses"
OLDER_SUFFIX: Final = ".older-responses"
FILE_BYTES: Final = 2_000_000  # about 12,000 responses; a process keeps two such files
# a file without news for this long belongs to a process that has ended long ago
FORGET_SECONDS: Final = 86_400.0


class NotedResponse(NamedTuple):
    """Line of a file. `replica` "": the response has been deleted."""

    service: str
    response: str
    replica: str
    owner: str


class ResponseFiles:
    """File of this process, which only grows, and the files of the others.

    Args:
        folder: Folder of the files of all processes.
        process: Id of this process.
    """

    def __init__(self, folder: Path, process: str) -> None:
        self._folder = folder
        self._own = folder / f"{process}{SUFFIX}"
        self._written = 0
        self._has_failed = False
        self._read_bytes: dict[int, int] = {}  # of each file, by its inode

    def append(self, noted: NotedResponse) -> None:
        """Write a line. A failure is logged, and the gateway goes on."""
        line = msgspec.json.encode(noted) + b"\n"
        try:
            if self._written == 0:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif self._written >= FILE_BYTES:
                self._own.replace(self._own.with_suffix(OLDER_SUFFIX))
                self._written = 0
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            descriptor = os.open(self._own, flags, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
            if self._written == 0:
                self._remove_old()
            self._written += len(line)
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                log.warning("the places of responses cannot be kept: %s", error)
            self._has_failed = True

    def read_news(self) -> Iterator[NotedResponse]:
        """Yield what other processes have written since the last call, the oldest file
        first."""
        files = []
        with suppress(OSError):
            for path in self._folder.iterdir():
                if path != self._own and path.suffix in (SUFFIX, OLDER_SUFFIX):
                    with suppress(OSError):
                        files.append((path.stat(), path))
        files.sort(key=lambda found: found[0].st_mtime)
        present = {status.st_ino: 0 for status, _ in files}
        read_bytes = self._read_bytes
        self._read_bytes = {
            inode: read_bytes.get(inode, start) for inode, start in present.items()
        }
        for status, path in files:
            if status.st_size > self._read_bytes[status.st_ino]:
                yield from self._read(path, status.st_ino)

    def _read(self, path: Path, inode: int) -> Iterator[NotedResponse]:
        try:
            with path.open("rb") as file:
                file.seek(self._read_bytes[inode])
                text = file.read()
        except OSError:
            return
        lines, newline, _ = text.rpartition(b"\n")  # the last line may be unfinished
        self._read_bytes[inode] += len(lines) + len(newline)
        for line in lines.splitlines():
            with suppress(msgspec.DecodeError):
                yield msgspec.json.decode(line, type=NotedResponse)

    def _remove_old(self) -> None:
        now = self._own.stat().st_mtime  # it was written just now
        for path in self._folder.iterdir():
            if path.suffix in (SUFFIX, OLDER_SUFFIX):
                with suppress(OSError):
                    if now - path.stat().st_mtime > FORGET_SECONDS:
                        path.unlink()


def response_folder(record: Path) -> Path:
    """Return the folder of the files of the gateway with this record."""
    return record.with_name("gateway-responses")
