"""The head's copy of the ranks' logs, as far as agents have shipped them.

Each byte of a log has two positions: the agent's offset, and the place in the head's
copy. The two differ once a gap was recorded as a line in the copy. A copy consists of
two files of half the size limit each; the older file is named .1. `rank-N.json` records
where the two files begin. Files are not synced: after a power failure, the agent ships
the lost bytes again.
"""

import asyncio
import json
import os
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from corral.api.log_sizes import LogSizes
from corral.api.log_times import (
    STAMP_SECONDS,
    Stamp,
    add_stamp,
    drop_stamps,
    read_stamps,
    times_of_lines,
)
from corral.domain.ids import AttemptNumber, JobId

RankKey = tuple[JobId, AttemptNumber, int]
TAIL_BYTES: Final = 1024 * 1024  # of a log are looked through for its last lines
NOTICE: Final = b"[corral] "  # begins the line about what was cut
NOTICE_BYTES: Final = 1024  # more than a line about what was cut takes
_OPEN_TRACKS: Final = 4096
STAMPS: Final = ".times"
_LOG: Final = re.compile(r"rank-(\d{1,9})\.log", re.ASCII)


@dataclass(slots=True, kw_only=True)
class LogTrack:
    """State of one kept log. `base` is the position of the newer file's first byte, and
    `older` that of the older file's first byte. An agent's offset is a position plus
    `ahead`. `stamped_at` is the moment of the last time stamp."""

    base: int = 0
    older: int = 0
    ahead: int = 0
    size: int = 0
    stamped_at: float = float("-inf")

    @property
    def end(self) -> int:
        return self.base + self.size


class OpenedLog(NamedTuple):
    """An opened log file, with the position of its first byte (`begin`) and the
    position where reading starts (`place`)."""

    place: int
    begin: int
    file: BinaryIO | None


class LogCursor:
    """A reader of one log across its two files. The file that it currently reads stays
    open: even if rotation deletes that file, the reader still reads it to the end. A
    reader that reads faster than the log is written therefore misses nothing."""

    def __init__(self, opened: Callable[[int], OpenedLog]) -> None:
        self._opened = opened
        self._in: OpenedLog | None = None

    def read(self, place: int, most: int) -> tuple[int, bytes]:
        """Return (position, bytes), starting at `place` or, if that byte is no longer
        kept, at the oldest kept byte.

        At most `most` bytes are returned, up to the end of the log.
        """
        place, data = self._read_block(place, most)
        while data and len(data) < most:
            block_offset, next_block = self._read_block(
                place + len(data), most - len(data)
            )
            if not next_block or block_offset > place + len(data):
                break
            data += next_block
        return place, data

    def _read_block(self, place: int, most: int) -> tuple[int, bytes]:
        """Return (position, bytes) from one file of the log, at most `most` bytes."""
        if self._in is not None and (data := _read_opened_log(self._in, place, most)):
            return place, data
        self.close()
        self._in = self._opened(place)
        return self._in.place, _read_opened_log(self._in, self._in.place, most)

    def close(self) -> None:
        if self._in is not None and self._in.file is not None:
            self._in.file.close()


def _read_opened_log(opened: OpenedLog, place: int, most: int) -> bytes:
    if opened.file is None or place < opened.begin:
        return b""
    return os.pread(opened.file.fileno(), most, place - opened.begin)


class LogKeeper:
    """Copies of all logs under one directory. One thread reads and writes them, because
    the files are small and in the page cache."""

    def __init__(
        self, root: Path, *, most_bytes: int, wall: Callable[[], float] | None = None
    ) -> None:
        """Create the keeper. `wall` is the clock for time stamps; without a clock,
        lines get no time stamps."""
        self._root = root
        self._wall = wall
        self._half = max(1, most_bytes // 2)
        self._tracks: OrderedDict[RankKey, LogTrack] = OrderedDict()
        self.sizes = LogSizes(root)
        self._bells: defaultdict[JobId, set[asyncio.Event]] = defaultdict(set)

    def append(self, key: RankKey, offset: int, data: bytes) -> int:
        """Append the bytes to the log; skip bytes that were appended before. Return the
        agent's offset up to which the log is kept.

        Raises: OSError if the disk does not accept the bytes.
        """
        track = self._open_track(key)
        kept_end = track.end + track.ahead
        data = data[max(0, kept_end - offset) :]
        if not data:
            return kept_end
        try:
            if offset > kept_end:
                complaint = (
                    f"{offset - kept_end:,} bytes are missing here: the node removed them "
                    "before the head received them"
                )
                self._append_bytes(key, track, f"\n[corral] {complaint}\n".encode())
                track.ahead = offset - track.end
                self._keep(key, track)
            self._record_arrival_time(key, track)
            self._append_bytes(key, track, data)
            if track.size >= self._half:
                self._rotate_log(key, track)
        except OSError:
            self._tracks.pop(key, None)  # to be read from the disk again
            raise
        for bell in self._bells.get(key[0], ()):
            bell.set()
        return track.end + track.ahead

    def cut(self, key: RankKey, keep_bytes: int, why: str) -> int:
        """Delete old lines, and keep about the last `keep_bytes` of the log below a
        line that reports the cut (`why`). Return how many bytes were freed.

        Nothing is cut if that would free little.

        Raises: OSError.
        """
        track = self._open_track(key)
        end_offset, held_bytes = track.end, track.end - track.older
        if held_bytes < 2 * max(keep_bytes, NOTICE_BYTES):
            return 0
        data = (
            self.read(key, end_offset - keep_bytes, keep_bytes)[1]
            if keep_bytes
            else b""
        )
        data = data[data.find(b"\n", 0, len(data) // 2) + 1 :]
        dropped = end_offset - len(data)
        notice = (
            NOTICE
            + f"{dropped:,} bytes before this line were dropped: {why}\n".encode()
        )
        new_path = self._path(key, ".log.new")
        new_path.write_bytes(notice + data)
        os.replace(new_path, self._path(key))
        self._path(key, ".log.1").unlink(missing_ok=True)
        track.size = len(notice) + len(data)
        track.base = track.older = end_offset - track.size
        self._keep(key, track)
        self.sizes.add(key[:2], track.size - held_bytes)
        return held_bytes - track.size

    def kept(self, key: RankKey) -> int:
        """Return the agent's offset up to which the log is kept."""
        track = self._open_track(key)
        return track.end + track.ahead

    def read(self, key: RankKey, place: int, most: int) -> tuple[int, bytes]:
        """Return (position, bytes), at most `most` bytes, starting at `place` or, if
        that byte is no longer kept, at the oldest kept byte."""
        with self.reading(key) as reading:
            return reading.read(place, most)

    @contextmanager
    def reading(self, key: RankKey) -> "Iterator[LogCursor]":
        """Open a cursor that reads the log across its files."""
        reading = LogCursor(partial(self.opened, key))
        try:
            yield reading
        finally:
            reading.close()

    def oldest(self, key: RankKey) -> int:
        """Return the position of the log's oldest kept byte."""
        return self._open_track(key).older

    def end(self, key: RankKey) -> int:
        """Return the position after the log's last byte."""
        return self._open_track(key).end

    def opened(self, key: RankKey, place: int) -> "OpenedLog":
        """Open the log's file that holds the position. If that byte is no longer kept,
        open the file with the oldest byte."""
        track = self._open_track(key)
        place = max(place, track.older)
        if place < track.base:
            with suppress(FileNotFoundError):
                return OpenedLog(
                    place, track.older, self._path(key, ".log.1").open("rb")
                )
            place = track.base
        with suppress(FileNotFoundError):
            return OpenedLog(place, track.base, self._path(key).open("rb"))
        return OpenedLog(place, track.base, None)

    def tail(self, key: RankKey, lines: int) -> int:
        """Return the place where the last `lines` lines begin."""
        track = self._open_track(key)
        if lines == 0:
            return track.end
        start_offset = max(track.older, track.end - TAIL_BYTES)
        text = b""
        while start_offset + len(text) < track.end:
            _, piece = self.read(key, start_offset + len(text), TAIL_BYTES)
            if not piece:
                break
            text += piece
        newline_index = len(text) - text.endswith(b"\n")
        for _ in range(lines):
            newline_index = text.rfind(b"\n", 0, max(0, newline_index))
            if newline_index < 0:
                return start_offset
        return start_offset + newline_index + 1

    def ranks(self, job: JobId, attempt: AttemptNumber) -> list[int]:
        """Return the ranks whose logs are kept, in order."""
        try:
            names = os.listdir(self._folder(job, attempt))
        except OSError:
            return []
        return sorted(
            int(match.group(1)) for name in names if (match := _LOG.fullmatch(name))
        )

    @contextmanager
    def bell(self, job: JobId) -> Iterator[asyncio.Event]:
        """Provide an event that is set whenever any log of the job has grown."""
        bell = asyncio.Event()
        self._bells[job].add(bell)
        try:
            yield bell
        finally:
            self._bells[job].discard(bell)
            if not self._bells[job]:
                del self._bells[job]

    def _folder(self, job: JobId, attempt: AttemptNumber) -> Path:
        return self._root / job / str(attempt)

    def _path(self, key: RankKey, end: str = ".log") -> Path:
        return self._folder(key[0], key[1]) / f"rank-{key[2]}{end}"

    def _open_track(self, key: RankKey) -> LogTrack:
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = self._load_track(key)
            while len(self._tracks) > _OPEN_TRACKS:
                self._tracks.popitem(last=False)
        self._tracks.move_to_end(key)
        return track

    def _load_track(self, key: RankKey) -> LogTrack:
        track = LogTrack()
        try:
            stored = json.loads(self._path(key, ".json").read_text())
            track = LogTrack(
                base=stored["base"], older=stored["older"], ahead=stored["ahead"]
            )
        except (OSError, ValueError, KeyError, TypeError):
            pass  # none yet: neither gap nor rotation
        newer, older = (
            _file_size(self._path(key)),
            _file_size(self._path(key, ".log.1")),
        )
        if newer is None and older is not None and track.base - track.older != older:
            # cut short while rotating
            track.older, track.base = track.base, track.base + older
        track.size = newer or 0
        return track

    def _append_bytes(self, key: RankKey, track: LogTrack, data: bytes) -> None:
        path = self._path(key)
        if not track.size:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("ab") as file:
            file.write(data)
        track.size += len(data)
        self.sizes.add(key[:2], len(data))

    def times(self, key: RankKey, begin: int, data: bytes) -> list[float | None]:
        """Return when each line of the data, which begins at the position `begin`,
        reached the head; the form is that of `times_of_lines`."""
        return times_of_lines(read_stamps(self._path(key, STAMPS)), begin, data)

    def _record_arrival_time(self, key: RankKey, track: LogTrack) -> None:
        """Record the arrival time of the bytes that are written next. After the clock
        was set back, a new time stamp is recorded at once."""
        if self._wall is None or 0 <= self._wall() - track.stamped_at < STAMP_SECONDS:
            return
        track.stamped_at = self._wall()
        path = self._path(key, STAMPS)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        add_stamp(path, Stamp(track.end, track.stamped_at))

    def _rotate_log(self, key: RankKey, track: LogTrack) -> None:
        os.replace(self._path(key), self._path(key, ".log.1"))
        self.sizes.add(key[:2], track.older - track.base)
        track.older, track.base, track.size = track.base, track.end, 0
        self._keep(key, track)
        self._path(key).touch()
        drop_stamps(self._path(key, STAMPS), track.older)

    def _keep(self, key: RankKey, track: LogTrack) -> None:
        new_path = self._path(key, ".json.new")
        track_fields = {
            name: getattr(track, name) for name in ("base", "older", "ahead")
        }
        new_path.write_text(json.dumps(track_fields))
        os.replace(new_path, self._path(key, ".json"))


def _file_size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def whole_characters(data: bytes) -> int:
    """Return how many bytes of the data come before an incomplete UTF-8 character at
    its end; all bytes without one."""
    for trailing_bytes in range(1, min(4, len(data)) + 1):
        byte = data[-trailing_bytes]
        if byte & 0xC0 == 0x80:
            continue  # inside a character
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) if length <= trailing_bytes else len(data) - trailing_bytes
    return len(data)
