"""Excerpts from the logs of failed ranks: the end of a log, and the last error if much
output followed it.

The head derives the cause of the failure from this text. To keep heartbeats small and
reading bounded, lines that differ from others only in their numbers are left out, and
the last error is searched backwards in the last megabytes of a log.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from corral.agent.log_filter import (
    ALIKE_LINES,
    TRACEBACK,
    cut,
    split,
    without_repeats,
    without_sources,
)
from corral.domain.attempt import Exit
from corral.domain.bounds import printed
from corral.domain.diagnosis import GAP

TAIL_BYTES: Final = 4096
# of these at most for the last error, where it is far from the end
ERROR_BYTES: Final = 1536
# rows of which are too long for READ_BYTES to hold enough of a log
LONG_BYTES: Final = 4096
LONG_READ_BYTES: Final = 2 * 1024 * 1024  # where there are such
# of the end: what is left of it without frames and repeated lines
READ_BYTES: Final = 65536
SEARCH_BYTES: Final = 4 * 1024 * 1024  # of the log of one rank
SEARCH_NODE_BYTES: Final = 16 * 1024 * 1024  # of all ranks of a node together
CHUNK_BYTES: Final = 512 * 1024
MOST_RANKS: Final = 16  # of a node: beats stay small when a thousand ranks fail at once
_HEAD_LINES: Final = 2  # of an error that is cut: its first lines, and its end
_ERROR_LOOKED_AT: Final = 16384
_LINK: Final = re.compile(  # between errors that were raised of each other
    rb"^(?:The above exception was the direct cause|During handling of the above exception)"
    rb"[^\n:]{0,60}:?$",
    re.MULTILINE,
)
_LINK_BYTES: Final = 200  # from it to the error that follows
_ERRORS: Final = (  # how errors begin that end a program
    TRACEBACK,
    b" panicked at ",
    b"\npanic: ",
    b"\nfatal error: ",
    b"terminate called after throwing",
    b'Exception in thread "',
    b"Fatal Python error: ",
    b"\nERROR: LoadError: ",
)

State = tuple[int, int]  # size of a file, and when it was written


def tails_of(
    logs: Path, exits: Iterable[tuple[int, Exit]]
) -> tuple[tuple[int, str], ...]:
    """Return the last output of the ranks that failed first, each with its rank, in
    rank order."""
    failed = sorted((exit.at, rank) for rank, exit in exits if not exit.clean)[
        :MOST_RANKS
    ]
    search = min(SEARCH_BYTES, SEARCH_NODE_BYTES // max(1, len(failed)))
    tails = [(rank, tail_of(logs / f"rank-{rank}.log", search)) for _, rank in failed]
    return tuple(sorted((rank, tail) for rank, tail in tails if tail))


def tail_of(file: Path, search_bytes: int = SEARCH_BYTES) -> str:
    """Return an excerpt from the end of the log file; it continues into the rotated
    file before it if the log file is too short. Return "" without a log.

    C++ frames are left out: NCCL's watchdog prints 9 KB of them below its error. If the
    last error is not in the excerpt, it is put first, followed by GAP.
    """
    state, rotated_state = _state_of(file), _state_of(_rotated_file(file))
    return (
        _tail_of(file, state, rotated_state, search_bytes) if state is not None else ""
    )


@lru_cache(maxsize=64)  # a state is made again at each change of another rank
def _tail_of(file: Path, state: State, before: State | None, search_bytes: int) -> str:
    size, _ = state
    log_end = _end_of(file, size, before, READ_BYTES)
    if any(len(row) > LONG_BYTES for row in log_end.split(b"\n")):
        log_end = _end_of(file, size, before, LONG_READ_BYTES)
        log_end = b"\n".join(cut(row) for row in split(log_end))[-READ_BYTES:]
    relevant_output = _substance(log_end)
    tail, begin = relevant_output, _begin_of_error(relevant_output)
    error = b""
    if begin is None:
        error = _error_in(log_end) or _error_far(file, size - READ_BYTES, search_bytes)
    elif begin < len(relevant_output) - TAIL_BYTES:
        error, tail = _error_in(relevant_output), _after_error(relevant_output)
    if error:
        tail = error + GAP.encode() + tail[-(TAIL_BYTES - len(error) - len(GAP)) :]
    return printed(tail[-TAIL_BYTES:].decode("utf-8", "replace"))


def _end_of(file: Path, size: int, before: State | None, most: int) -> bytes:
    """Return at most `most` bytes from the end of a file; if it is shorter, its
    predecessor supplies the rest."""
    log_end = _read_before_offset(file, size, most)
    if len(log_end) < most and before is not None:
        log_end = (
            _read_before_offset(_rotated_file(file), before[0], most - len(log_end))
            + log_end
        )
    return log_end


def _after_error(text: bytes) -> bytes:
    """Return the text that was printed after the last error in `text`."""
    rows = text[max(text.rfind(error_marker) for error_marker in _ERRORS) + 1 :].split(
        b"\n"
    )
    return b"\n".join(rows[_rows_of_error(rows) :])


def _rotated_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.1")


def _state_of(file: Path) -> State | None:
    with suppress(OSError):
        stat = file.stat()
        return stat.st_size, stat.st_mtime_ns
    return None


def _read_before_offset(file: Path, end: int, size: int) -> bytes:
    """Return at most `size` bytes of the file before offset `end`."""
    with suppress(OSError), file.open("rb") as opened:
        opened.seek(max(0, end - size))
        return opened.read(min(size, end))
    return b""


def _substance(text: bytes) -> bytes:
    """Return the text without rows that do not describe a failure."""
    rows = [cut(row) for row in split(text)]
    return b"\n".join(without_repeats(without_sources(rows)))


def _begin_of_error(text: bytes) -> int | None:
    """Return the offset in `text` at which the last error begins; None without an
    error. If errors were raised from each other, return the offset of the first error
    of that chain."""
    error_offset = max(text.rfind(error_marker) for error_marker in _ERRORS)
    if error_offset < 0:
        return None
    while (
        link := _LINK.search(text, max(0, error_offset - _LINK_BYTES), error_offset)
    ) is not None:
        traceback_start = text.rfind(TRACEBACK, 0, link.start())
        if traceback_start < 0:
            break
        error_offset = traceback_start
    return error_offset


def _error_in(text: bytes) -> bytes:
    """Return the last error in `text`, shortened to its first lines and its end; b""
    without an error. If errors were raised from each other, return the first and the
    last error of that chain."""
    error_offset = _begin_of_error(text)
    if error_offset is None:
        return b""
    begin = text.rfind(b"\n", 0, error_offset + 1) + 1
    full_error = b"\n".join(without_sources([cut(row) for row in split(text[begin:])]))
    links = _LINK.split(full_error[:_ERROR_LOOKED_AT])
    if len(links) == 1:
        return _shorten_error(links[0], ERROR_BYTES)
    chain_phrase: bytes = _LINK.findall(full_error)[0]
    first_error, last_error = (
        _shorten_error(links[0], ERROR_BYTES // 2),
        _shorten_error(links[-1].lstrip(), ERROR_BYTES // 2),
    )
    return first_error + b"\n" + chain_phrase + b":\n\n" + last_error


def _shorten_error(error: bytes, most: int) -> bytes:
    """Return the text of one error, shortened to its first lines and its end, in at
    most `most` bytes."""
    rows = error.lstrip(b"\n").split(b"\n")
    rows = rows[: _rows_of_error(rows)]
    head = b"\n".join(rows[:_HEAD_LINES])[: most // 3]
    rest = b"\n".join(rows[_HEAD_LINES:])
    return head + b"\n" + rest[-(most - len(head) - 2) :] + b"\n"


def _rows_of_error(rows: list[bytes]) -> int:
    """Return how many rows, from the first, belong to an error. It ends where its
    message is followed by an empty line or by a few lines that are not indented."""
    below = 0
    for number, row in enumerate(rows[1:], start=1):
        if not row.strip() and below:
            return number
        below += bool(row.strip()) and not row[:1].isspace()
        if below > ALIKE_LINES:
            return number
    return len(rows)


def _error_far(file: Path, end: int, most: int) -> bytes:
    """Return the last error before the offset `end` of the file, searched backwards
    over at most `most` bytes; b"" without an error."""
    stop = max(0, end - most)
    while end > stop:
        size = min(CHUNK_BYTES, end - stop)
        # an error may go on in what was searched before
        window_bytes = size + _ERROR_LOOKED_AT
        if error := _error_in(
            _read_before_offset(file, end + _ERROR_LOOKED_AT, window_bytes)
        ):
            return error
        end -= size
    return b""
