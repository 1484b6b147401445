"""Bounded reads and searches in kept logs.

Files are read in a thread, outside the head's event loop. Each step reads one piece, so
a search in a large log neither blocks the loop nor uses much memory. Each user can run
one search at a time.
"""

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from corral.api.kept_logs import LogKeeper, OpenedLog, RankKey, whole_characters
from corral.domain.ids import UserName

PIECE_BYTES: Final = 256 * 1024
MOST_RANGE_BYTES: Final = 1024 * 1024
SEARCH_BYTES: Final = 64 * 1024 * 1024  # of one request
LINE_BYTES: Final = 64 * 1024  # a longer line is searched in parts
LINE_LETTERS: Final = 1_000  # of a line that was found


class LogSlice(NamedTuple):
    """Bytes of a log; `begin` is the position of the first. They are whole lines where
    the range allows it."""

    begin: int
    data: bytes


class MatchedLine(NamedTuple):
    """A line that contains the searched text. `place` is where it begins, and `end` is
    the place behind it."""

    place: int
    line: str
    end: int


@dataclass(slots=True)
class Searched:
    """The result of a search in one log: the matched lines, and the position `place` up
    to which the log was searched."""

    place: int
    found: list[MatchedLine] = field(default_factory=list)


async def read_beside(
    keeper: LogKeeper, key: RankKey, place: int, most: int
) -> LogSlice:
    """Return at most `most` bytes of the log, starting at `place` or at the oldest kept
    byte. A thread reads the file."""
    opened = keeper.opened(key, place)
    if opened.file is None:
        return LogSlice(opened.place, b"")
    return LogSlice(
        opened.place, await asyncio.to_thread(_read_and_close, opened, most)
    )


def _read_and_close(opened: OpenedLog, most: int) -> bytes:
    assert opened.file is not None
    with opened.file as file:
        return os.pread(file.fileno(), most, opened.place - opened.begin)


async def pieces(
    keeper: LogKeeper, key: RankKey, place: int, until: int
) -> AsyncIterator[LogSlice]:
    """Yield the bytes from `place` to `until` in consecutive pieces."""
    while place < until:
        log_slice = await read_beside(
            keeper, key, place, min(PIECE_BYTES, until - place)
        )
        if not log_slice.data:
            return
        yield log_slice
        place = log_slice.begin + len(log_slice.data)


async def range_of(keeper: LogKeeper, key: RankKey, begin: int, end: int) -> LogSlice:
    """Return the bytes from `begin` to `end`, but start at the first whole line. No
    character is cut in two."""
    start = max(begin - 1, keeper.oldest(key))  # whether a line begins there, too
    first_offset, full_bytes = begin, b""
    async for log_slice in pieces(keeper, key, start, end):
        first_offset = first_offset if full_bytes else log_slice.begin
        full_bytes += log_slice.data
    if start < begin <= first_offset + len(full_bytes):
        line = full_bytes.find(b"\n", 0, len(full_bytes) // 2 + 1) + 1
        cut = line or begin - first_offset  # one long line is not dropped
        first_offset, full_bytes = first_offset + cut, full_bytes[cut:]
    if end < keeper.end(key):
        full_bytes = full_bytes[: whole_characters(full_bytes)]
    return LogSlice(first_offset, full_bytes)


async def search(
    keeper: LogKeeper,
    key: RankKey,
    text: str,
    *,
    place: int,
    limit: int,
    most_bytes: int,
) -> Searched:
    """Return up to `limit` lines that contain the text, from `place` on. The case of
    ASCII letters is ignored."""
    needle = text.encode().lower()
    place = max(place, keeper.oldest(key))
    result = Searched(place)
    end_offset = min(keeper.end(key), place + most_bytes)
    rest = b""
    async for log_slice in pieces(keeper, key, place, end_offset):
        # rotation has dropped what lay between
        if log_slice.begin > result.place + len(rest):
            result.place, rest = log_slice.begin, b""
        data = rest + log_slice.data
        is_last = log_slice.begin + len(log_slice.data) >= keeper.end(key)
        complete_bytes = len(data) if is_last else data.rfind(b"\n") + 1
        if not complete_bytes and len(data) >= LINE_BYTES:
            complete_bytes = len(data)
        room = limit - len(result.found)
        matches = await asyncio.to_thread(
            _find_matching_lines, data[:complete_bytes], needle, result.place, room
        )
        result.found += matches
        if len(matches) == room:
            result.place = matches[-1].end
            return result
        result.place, rest = result.place + complete_bytes, data[complete_bytes:]
    return result


def _find_matching_lines(
    data: bytes, needle: bytes, base: int, limit: int
) -> list[MatchedLine]:
    return [
        match
        for match, _ in zip(_each_match(data, needle, base), range(limit), strict=False)
    ]


def _each_match(data: bytes, needle: bytes, base: int) -> Iterator[MatchedLine]:
    lower, match_index = data.lower(), 0
    while (match_index := lower.find(needle, match_index)) >= 0:
        begin = lower.rfind(b"\n", 0, match_index) + 1
        line_end = lower.find(b"\n", match_index)
        line_end = len(lower) if line_end < 0 else line_end
        line = data[begin:line_end].decode(errors="replace")[:LINE_LETTERS]
        match_index = min(line_end + 1, len(data))
        yield MatchedLine(base + begin, line.replace("\0", "?"), base + match_index)


def ranks_from(
    ranks: Sequence[int], after: tuple[int, int] | None
) -> Iterator[tuple[int, int]]:
    """Yield each rank that is still to be searched, and the position where its search
    begins. `after` is the (rank, position) where an earlier search ended; None begins
    with the first rank."""
    for rank in ranks:
        if after is None or rank > after[0]:
            yield rank, 0
        elif rank == after[0]:
            yield rank, after[1]


@dataclass(slots=True)
class SearchLine:
    """Locks by which each user runs one search at a time. Further searches of the same
    user wait."""

    _locks: defaultdict[UserName, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )
    _waiting: Counter[UserName] = field(default_factory=Counter)

    @asynccontextmanager
    async def turn(self, user: UserName) -> AsyncIterator[None]:
        """Wait until the user has no other search running. Further searches of the user
        then wait until the body ends."""
        self._waiting[user] += 1
        try:
            async with self._locks[user]:
                yield
        finally:
            self._waiting[user] -= 1
            if not self._waiting[user]:
                del self._waiting[user], self._locks[user]
