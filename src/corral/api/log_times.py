"""Arrival times of logs: time stamps in a file next to each log, at most one a second.

A time stamp is the place of a byte and the wall clock at its arrival. A byte has the
time of the last time stamp at or before it, so a time is at most a second early. The
file is bounded: when it is full, every second time stamp is dropped. Like logs, the
file is not synced.
"""

import os
import struct
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

STAMP_SECONDS: Final = 1.0
MOST_STAMPS: Final = 16_384  # of one rank's log: 256 KiB
_STAMP: Final = struct.Struct(">Qd")


class Stamp(NamedTuple):
    """A time stamp. `place` is the position of a byte in the log, and `at` is its
    arrival in seconds since 1970, by the head's wall clock."""

    place: int
    at: float


def add_stamp(file: Path, stamp: Stamp) -> None:
    """Append the time stamp to the file. If the file is full, drop every second time
    stamp.

    Raises: OSError.
    """
    with file.open("ab") as stamps:
        stamps.write(_STAMP.pack(*stamp))
        size = stamps.tell()
    if size >= MOST_STAMPS * _STAMP.size:
        _rewrite_stamps(file, read_stamps(file)[::2])


def drop_stamps(file: Path, oldest: int) -> None:
    """Drop the time stamps of bytes that are no longer kept; `oldest` is the place of
    the oldest kept byte.

    Raises: OSError.
    """
    stamps = read_stamps(file)
    first_index = max(0, _last_stamp_index(stamps, oldest))
    if first_index:
        _rewrite_stamps(file, stamps[first_index:])


def read_stamps(file: Path) -> list[Stamp]:
    """Return the time stamps in the order of their places; an empty list if the file
    cannot be read."""
    try:
        data = file.read_bytes()
    except OSError:
        return []
    whole_bytes = len(data) - len(data) % _STAMP.size
    stamps = [
        Stamp(*stamp_fields) for stamp_fields in _STAMP.iter_unpack(data[:whole_bytes])
    ]
    rises = all(
        stamp.place <= next_stamp.place for stamp, next_stamp in pairwise(stamps)
    )
    return stamps if rises else sorted(stamps)


def times_of_lines(stamps: list[Stamp], begin: int, data: bytes) -> list[float | None]:
    """Return the time at which each line of `data`, a section of a log, was written.

    The list has one entry for each piece of `data` between line ends. The first and the
    last piece may be parts of lines that `data` cuts off. An entry is None if the piece
    begins before the first time stamp.

    Args:
        stamps: the time stamps of the log, each with its position in the log.
        begin: position of `data` in the log.
    """
    times: list[float | None] = []
    line_begin = 0
    while True:
        index = _last_stamp_index(stamps, begin + line_begin)
        times.append(stamps[index].at if index >= 0 else None)
        line_end = data.find(b"\n", line_begin)
        if line_end < 0:
            return times
        line_begin = line_end + 1


def _last_stamp_index(stamps: list[Stamp], place: int) -> int:
    """Return the index of the last stamp whose position is at most `place`; -1 if all
    stamps are after it, or there are none."""
    return bisect_right(stamps, place, key=lambda stamp: stamp.place) - 1


def _rewrite_stamps(file: Path, stamps: list[Stamp]) -> None:
    new_path = file.with_name(file.name + ".new")
    new_path.write_bytes(b"".join(_STAMP.pack(*stamp) for stamp in stamps))
    os.replace(new_path, file)
