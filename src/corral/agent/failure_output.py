"""Excerpts from the logs of failed ranks: the end of a log, and the last error if much
output followed it.

The head derives the cause of the failure from this text. To keep heartbeats small and
reading bounded, lines that differ from others only in their numbers are left out, and
the last error is searched backwards in the last megabytes of a log.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from corral.agent.last_error import (
    ERROR_LOOKED_AT,
    after_error,
    begin_of_error,
    error_in,
)
from corral.agent.log_filter import cut, split, without_repeats, without_sources
from corral.agent.worker_errors import (
    excerpt_of_workers,
    is_shared,
    last_error_of,
    root_rank,
)
from corral.domain.attempt import Exit
from corral.domain.bounds import printed
from corral.domain.diagnosis import GAP

TAIL_BYTES: Final = 4096
# rows of which are too long for READ_BYTES to hold enough of a log
LONG_BYTES: Final = 4096
LONG_READ_BYTES: Final = 2 * 1024 * 1024  # where there are such
# of the end: what is left of it without frames and repeated lines
READ_BYTES: Final = 65536
# of a log that several processes share: each may have printed a long traceback
SHARED_READ_BYTES: Final = 1024 * 1024
SEARCH_BYTES: Final = 4 * 1024 * 1024  # of the log of one rank
SEARCH_NODE_BYTES: Final = 16 * 1024 * 1024  # of all ranks of a node together
CHUNK_BYTES: Final = 512 * 1024
MOST_RANKS: Final = 16  # of a node: beats stay small when a thousand ranks fail at once
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
    last error is not in the excerpt, it is put first, followed by GAP. Of a log that
    several processes share, the errors of these processes are put first.
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
    is_cut = len(relevant_output) > TAIL_BYTES or size > READ_BYTES
    if is_cut and is_shared(log_end):
        return _sent(_excerpt_of_shared(file, size, before, search_bytes))
    tail, begin = relevant_output, begin_of_error(relevant_output)
    error = b""
    if begin is None:
        error = error_in(log_end) or _error_far(file, size - READ_BYTES, search_bytes)
    elif begin < len(relevant_output) - TAIL_BYTES:
        error, tail = error_in(relevant_output), after_error(relevant_output)
    if error:
        tail = error + GAP.encode() + tail[-(TAIL_BYTES - len(error) - len(GAP)) :]
    return _sent(tail)


def _sent(tail: bytes) -> str:
    return printed(tail[-TAIL_BYTES:].decode("utf-8", "replace"))


def _excerpt_of_shared(
    file: Path, size: int, before: State | None, search_bytes: int
) -> bytes:
    """Return the excerpt of a log that several processes share. If the process that
    failed first has printed no error in the last SHARED_READ_BYTES, its error is
    searched before them."""
    text = _end_of(file, size, before, min(SHARED_READ_BYTES, search_bytes))
    root = root_rank(text)
    if root is not None and not last_error_of(root, text):
        end = size - SHARED_READ_BYTES
        text = _worker_error_far(file, end, search_bytes, root) + text
    return excerpt_of_workers(text, TAIL_BYTES)


def _worker_error_far(file: Path, end: int, most: int, rank: int) -> bytes:
    """Return the last error of a worker before the offset `end` of the file, searched
    backwards over at most `most` bytes; b"" without an error."""
    stop = max(0, end - most)
    while end > stop:
        size = min(CHUNK_BYTES, end - stop)
        window = _read_before_offset(
            file, end + ERROR_LOOKED_AT, size + ERROR_LOOKED_AT
        )
        if error := last_error_of(rank, window):
            return error
        end -= size
    return b""


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


def _error_far(file: Path, end: int, most: int) -> bytes:
    """Return the last error before the offset `end` of the file, searched backwards
    over at most `most` bytes; b"" without an error."""
    stop = max(0, end - most)
    while end > stop:
        size = min(CHUNK_BYTES, end - stop)
        # an error may go on in what was searched before
        window_bytes = size + ERROR_LOOKED_AT
        if error := error_in(
            _read_before_offset(file, end + ERROR_LOOKED_AT, window_bytes)
        ):
            return error
        end -= size
    return b""
