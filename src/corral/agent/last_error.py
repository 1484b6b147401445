"""Last error of a log, shortened to what a reader needs: its first lines, its end, and
the first error of its chain."""

import re
from typing import Final

from corral.agent.log_filter import (
    ALIKE_LINES,
    TRACEBACK,
    cut,
    split,
    without_sources,
)

ERROR_BYTES: Final = 1536  # at most of one error
ERROR_LOOKED_AT: Final = 16384
_HEAD_LINES: Final = 2  # of an error that is cut: its first lines, and its end
_LINK: Final = re.compile(  # between errors that were raised of each other
    rb"^(?:The above exception was the direct cause|During handling of the above exception)"
    rb"[^\n:]{0,60}:?$",
    re.MULTILINE,
)
_LINK_BYTES: Final = 200  # from it to the error that follows
_FRAME: Final = b'  File "'
_INSTALLED: Final = re.compile(rb"(?:site|dist)-packages/|/lib/python\d|File \"<")
_LOGGED: Final = re.compile(rb"[IWEF]\d{4} \d\d:\d\d:")  # a row of glog's form
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


def after_error(text: bytes) -> bytes:
    """Return the text that was printed after the last error in `text`."""
    rows = text[max(text.rfind(error_marker) for error_marker in _ERRORS) + 1 :].split(
        b"\n"
    )
    return b"\n".join(rows[_rows_of_error(rows) :])


def begin_of_error(text: bytes) -> int | None:
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


def error_in(text: bytes, most: int = ERROR_BYTES) -> bytes:
    """Return the last error in `text`, shortened to its first lines and its end, in
    about `most` bytes; b"" without an error. If errors were raised from each other,
    return the first and the last error of that chain."""
    error_offset = begin_of_error(text)
    if error_offset is None:
        return b""
    begin = text.rfind(b"\n", 0, error_offset + 1) + 1
    full_error = b"\n".join(without_sources([cut(row) for row in split(text[begin:])]))
    links = _LINK.split(full_error[:ERROR_LOOKED_AT])
    if len(links) == 1:
        return _shorten_error(links[0], most)
    chain_phrase: bytes = _LINK.findall(full_error)[0].rstrip(b":")
    first_error, last_error = (
        _shorten_error(links[0], most // 2),
        _shorten_error(links[-1].lstrip(), most // 2),
    )
    return first_error + b"\n" + chain_phrase + b":\n\n" + last_error


def _shorten_error(error: bytes, most: int) -> bytes:
    """Return the text of one error, shortened to its first lines and its end, in at
    most `most` bytes."""
    rows = error.lstrip(b"\n").split(b"\n")
    rows = _without_library_frames(rows[: _rows_of_error(rows)], most)
    head = b"\n".join(rows[:_HEAD_LINES])[: most // 3]
    rest = b"\n".join(rows[_HEAD_LINES:])
    return head + b"\n" + rest[-(most - len(head) - 2) :] + b"\n"


def _without_library_frames(rows: list[bytes], most: int) -> list[bytes]:
    """Return the rows; if they are longer than `most` bytes, without the frames of
    installed libraries between the first lines and the newest frame."""
    frames = [number for number, row in enumerate(rows) if row.startswith(_FRAME)]
    if sum(len(row) + 1 for row in rows) <= most or not frames:
        return rows
    return [
        row
        for number, row in enumerate(rows)
        if number < _HEAD_LINES
        or number >= frames[-1]
        or not (row.startswith(_FRAME) and _INSTALLED.search(row))
    ]


def _rows_of_error(rows: list[bytes]) -> int:
    """Return how many rows, from the first, belong to an error. It ends where its
    message is followed by an empty line, by a row of a logger or by a few lines that
    are not indented."""
    below = 0
    for number, row in enumerate(rows[1:], start=1):
        if below and (not row.strip() or _LOGGED.match(row)):
            return number
        below += bool(row.strip()) and not row[:1].isspace()
        if below > ALIKE_LINES:
            return number
    return len(rows)
