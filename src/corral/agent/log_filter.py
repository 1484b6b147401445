"""Filter for the rows of a log: it removes what does not describe a failure, namely
source lines of tracebacks, C++ frames, repeated rows, and the middle of very long rows.
"""

import re
from collections import Counter
from typing import Final

ALIKE_LINES: Final = 8  # more of one shape are a count of something
HEAD_BYTES: Final = 480  # of a row that is longer than both together
END_BYTES: Final = 240
ESCAPED_BYTES: Final = 3000  # of one that holds a traceback as one string of JSON

TRACEBACK: Final = b"Traceback (most recent call last)"
_ESCAPED: Final = TRACEBACK + b":\\n"
_LEFT_OUT: Final = b" ... "
_LINE_END: Final = re.compile(  # of a name or an option in a script with CRLF
    rb"\r(?=(?:['\"]|\xe2\x80\x99)?: [a-zA-Z])|(?<=Illegal option -)\r"
)
# of c10::Error
_FRAMES: Final = re.compile(rb"^[^\n]{0,40}frame #\d+: [^\n]*\n", re.MULTILINE)
_FRAME: Final = re.compile(rb'^(?:  \| |    )?  File "[^"\n]{1,500}", line \d+, in ')
# and the blocks of progress bars
_NUMBERS: Final = re.compile(rb"\d+|\s+|[\xe2][\x80-\xbf]{2}")


def split(text: bytes) -> list[bytes]:
    """Return the rows of the text without C++ frames. A carriage return begins a new
    row, except at the end of a name in a shell's message."""
    return (
        _LINE_END.sub(rb"\\r", _FRAMES.sub(b"", text))
        .replace(b"\r", b"\n")
        .split(b"\n")
    )


def cut(row: bytes) -> bytes:
    """Return the row; a very long row is cut to its beginning and its end."""
    if len(row) <= HEAD_BYTES + END_BYTES:
        return row
    escape_offset = row.find(_ESCAPED)
    if escape_offset >= 0:
        return row[escape_offset : escape_offset + ESCAPED_BYTES]
    return row[:HEAD_BYTES] + _LEFT_OUT + row[-END_BYTES:]


def without_sources(rows: list[bytes]) -> list[bytes]:
    """Return the rows without the lines of source code in Python's tracebacks, because
    each traceback frame names file and line."""
    kept_lines = []
    is_below = False
    for row in rows:
        if is_below and row.startswith(b"    ") and _FRAME.match(row) is None:
            continue
        is_below = _FRAME.match(row) is not None
        kept_lines.append(row)
    return kept_lines


def without_repeats(rows: list[bytes]) -> list[bytes]:
    """Return the rows without repetitions: of many rows that differ only in their
    numbers, only the first and the last are kept."""
    shapes = [_NUMBERS.sub(b"0", row[:200]) for row in rows]
    remaining_counts, seen_counts = Counter(shapes), Counter[bytes]()
    kept_lines = []
    for row, shape in zip(rows, shapes, strict=True):
        alike = remaining_counts[shape] if shape.strip() else 0
        seen_counts[shape] += 1
        if (
            alike <= ALIKE_LINES
            or seen_counts[shape] in (1, alike)
            or _FRAME.match(row)
        ):
            kept_lines.append(row)
    return kept_lines
