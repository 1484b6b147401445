"""Check whether the write-ahead log of SQLite has lost acknowledged commits.

SQLite ends a log at the first bad frame without an error. After a power cut this is
right, because the frames after it were never synced. But each commit is synced before
the next one is written. So if a second commit follows the bad frame, in one unbroken
chain of checksums, the bad frame had been durable: the disk has damaged it, and
continuing would lose acknowledged changes.
Source: https://www.sqlite.org/fileformat2.html, section 4 (the log) and 4.1 (its
checksums).
"""

import struct
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

HEADER: Final = struct.Struct(">8I")
FRAME: Final = struct.Struct(">6I")
VALID_FRAMES_AT: Final = 16  # in the log's index: frames up to the last good commit
MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}  # byte order of the checksums' words

Sums = tuple[int, int]


class Frame(NamedTuple):
    page: int
    size_after: int  # not 0: a commit ends here
    salts: tuple[int, int]
    sums: Sums
    body: bytes  # what the checksum is made of


def has_lost_commits(log: Path, index: Path) -> bool:
    """Return whether the write-ahead log holds durable commits after the point where
    SQLite ends it.

    Call this while a connection that has read is open: the index is then the one that
    SQLite built.
    """
    valid = struct.unpack_from("=I", index.read_bytes()[:48], VALID_FRAMES_AT)[0]
    with log.open("rb") as file:
        raw = file.read(HEADER.size)
        if len(raw) < HEADER.size:
            return False
        magic, _, page_bytes, _, salt_1, salt_2, *sums = HEADER.unpack(raw)
        order = MAGIC.get(magic, "<")
        is_header_valid = _update_checksums(raw[:24], (0, 0), order) == tuple(sums)
        return _has_two_commits(
            file,
            valid,
            page_bytes if is_header_valid else 4096,
            (salt_1, salt_2) if is_header_valid else None,
            order,
        )


def _has_two_commits(
    file: BinaryIO,
    valid: int,
    page_bytes: int,
    salts: tuple[int, int] | None,
    order: str,
) -> bool:
    """Return whether two commits are in one unbroken chain after the first invalid
    frame. `valid`: number of valid frames."""
    file.seek(HEADER.size + valid * (FRAME.size + page_bytes))
    previous_frame: Frame | None = None
    commits = 0
    while (frame := _read_wal_frame(file, page_bytes)) is not None:
        of_this_log = frame.salts == (salts or frame.salts)
        chained = (
            previous_frame is not None
            and frame.salts == previous_frame.salts
            and of_this_log
            and _update_checksums(frame.body, previous_frame.sums, order) == frame.sums
        )
        commits = commits if chained else 0
        commits += of_this_log and frame.size_after != 0
        if commits >= 2:
            return True
        previous_frame = frame
    return False


def _read_wal_frame(file: BinaryIO, page_bytes: int) -> Frame | None:
    raw = file.read(FRAME.size + page_bytes)
    if len(raw) < FRAME.size + page_bytes:
        return None
    page, size_after, salt_1, salt_2, sum_1, sum_2 = FRAME.unpack_from(raw)
    body = raw[:8] + raw[FRAME.size :]
    return Frame(page, size_after, (salt_1, salt_2), (sum_1, sum_2), body)


def _update_checksums(data: bytes, sums: Sums, order: str) -> Sums:
    first, second = sums
    data_words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for left_word, right_word in zip(data_words[::2], data_words[1::2], strict=True):
        first = (first + left_word + second) & 0xFFFFFFFF
        second = (second + right_word + first) & 0xFFFFFFFF
    return first, second
