"""File without a name in which one process publishes its counters to others.

The file ends with the last process that has it open, also when all of them are killed.
"""

import os
import struct
import tempfile
from collections.abc import Sequence
from typing import Final
from zlib import crc32

_HEADER: Final = struct.Struct("<QQI")
# a write that is cut short damages one of two places; the other has the state before
_PLACES: Final = (0, 1 << 30)
READS: Final = 3
MOST_COUNTER_FILES: Final = 512  # of the workers of a gateway and their predecessors


class CounterFile:
    """Newest whole state that its writer has published."""

    __slots__ = ("_sequence", "descriptor")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._sequence = self._newest()[0]

    @classmethod
    def create(cls) -> "CounterFile":
        """Create an empty file. Raises: OSError."""
        with tempfile.TemporaryFile() as file:
            return cls(os.dup(file.fileno()))

    def write(self, state: bytes) -> None:
        """Publish a state; there is one writer. Raises: OSError."""
        self._sequence += 1
        place = _PLACES[self._sequence % 2]
        header = _HEADER.pack(self._sequence, len(state), crc32(state))
        os.pwrite(self.descriptor, header + state, place)

    def read(self) -> bytes:
        """Return the newest whole state; empty if none has been written yet."""
        return self._newest()[1]

    def _newest(self) -> tuple[int, bytes]:
        for _ in range(READS):  # the writer may be faster than one read
            states = [state for place in _PLACES if (state := self._state_at(place))]
            if states:
                return max(states)
        return 0, b""

    def _state_at(self, place: int) -> tuple[int, bytes] | None:
        header = os.pread(self.descriptor, _HEADER.size, place)
        if len(header) < _HEADER.size:
            return None
        sequence, size, checksum = _HEADER.unpack(header)
        state = os.pread(self.descriptor, size, place + _HEADER.size)
        if len(state) != size or crc32(state) != checksum or not sequence:
            return None
        return sequence, state

    def close(self) -> None:
        os.close(self.descriptor)


def encode_files(own: CounterFile | None, others: Sequence[CounterFile]) -> str:
    """Return the text of a variable that passes files to another process.

    Args:
        own: File that the other process writes.
        others: Files that it reads.
    """
    first = "-" if own is None else str(own.descriptor)
    return ",".join([first, *(str(file.descriptor) for file in others)])


def decode_files(text: str) -> tuple[CounterFile | None, list[CounterFile]]:
    """Return the files that `encode_files` has passed: the own one, and the others."""
    first, *rest = text.split(",") if text else ["-"]
    written = CounterFile(int(first)) if first.isdigit() else None
    return written, [CounterFile(int(part)) for part in rest if part.isdigit()]
