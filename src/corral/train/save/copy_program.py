"""Program that hashes the files of saves, and copies them to a disk durably. A rank
starts it once, so that this work holds no interpreter lock of the trainer.

Each line of its standard input is one request, and each line of its standard output the
result. It ends with its input. It imports only what every Python interpreter includes,
because it starts while training runs.
"""

import errno
import hashlib
import json
import mmap
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

NICENESS: Final = 10  # training comes first, but a save must end
# stays in a core's cache between hashing and writing
CHUNK_BYTES: Final = 512 * 1024


class FileCopy(NamedTuple):
    """A file of `size` bytes to hash. `target`: where to copy it to; "": nowhere.
    `bytes_per_second`: the rate of the copy at most; 0: no cap."""

    source: str
    size: int
    target: str = ""
    bytes_per_second: float = 0.0


def copy_files(copies: Sequence[FileCopy]) -> list[str]:
    """Hash the files, copy those with a target, and make the copies durable. Return the
    SHA-256 of each file.

    Raises: OSError, also if a file has fewer bytes than the request says.
    """
    return [_copy_file(copy) for copy in copies]


def _copy_file(copy: FileCopy) -> str:
    hasher = hashlib.sha256()
    source = os.open(copy.source, os.O_RDONLY | os.O_CLOEXEC)
    target = -1
    try:
        # a mapping would end the process where the file is too short
        if os.fstat(source).st_size < copy.size:
            raise OSError(errno.EIO, f"fewer than {copy.size} bytes", copy.source)
        if copy.target:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            target = os.open(copy.target, flags, 0o644)
        if copy.size:
            with mmap.mmap(source, copy.size, prot=mmap.PROT_READ) as mapped:
                rate = copy.bytes_per_second
                _hash_and_write(hasher, memoryview(mapped), target, rate)
        if target >= 0:
            os.fsync(target)
    finally:
        os.close(source)
        if target >= 0:
            os.close(target)
    return hasher.hexdigest()


def _hash_and_write(
    hasher: "hashlib._Hash", data: memoryview, target: int, bytes_per_second: float
) -> None:
    began = time.monotonic()
    with data:
        for start in range(0, len(data), CHUNK_BYTES):
            with data[start : start + CHUNK_BYTES] as chunk:
                hasher.update(chunk)
                _write_all(target, chunk)
            if bytes_per_second:
                due = began + (start + CHUNK_BYTES) / bytes_per_second
                time.sleep(max(0.0, due - time.monotonic()))


def _write_all(target: int, data: memoryview) -> None:
    written = 0
    while target >= 0 and written < len(data):
        written += os.write(target, data[written:])


def _answer(line: str) -> dict[str, Any]:
    try:
        copies = [FileCopy(*fields) for fields in json.loads(line)]
        return {"sha256": copy_files(copies)}
    except OSError as error:
        return {"error": [error.errno or 0, error.strerror or "", error.filename or ""]}


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # its rank may still save
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    for line in sys.stdin:
        print(json.dumps(_answer(line)), flush=True)


if __name__ == "__main__":
    main()
