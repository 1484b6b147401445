"""Detection of errors in the output of a rank that ended with exit code 0, because a
shell hid a program's exit code."""

import re
from typing import Final

from corral.agent.log_filter import TRACEBACK

ERROR_CHARACTERS: Final = 300
READ_BYTES: Final = 64 * 1024
_MESSAGE: Final = re.compile(rb"[A-Za-z_][\w.]*(?:: |$)")
_OUTERMOST: Final = re.compile(
    rb'  File "[^"\n]{1,500}", line \d+, in <module>$|  File "<frozen runpy>'
)
_CHAINED: Final = re.compile(rb"(?:During handling of the|The above exception was)")
# a line by which a program reports that it caught what follows
_ANNOUNCES: Final = re.compile(
    rb"error|exception|fail|warn|retr|attempt|skip|ignor|caught|trial|traceback|\[[EWI]\]|:$",
    re.IGNORECASE,
)
_LONE_PROGRAM: Final = re.compile(  # its own exit code is that of the rank
    r"\s*(?:exec\s+|\w+=\S*\s+)*(?:\S*/)?"
    r"(?:python[\d.]*|torchrun|accelerate|deepspeed)\s[^;&|\n]*$"
)

_TRIES_AGAIN: Final = re.compile(
    r"\|\||^\s*(?:until|while|if)\s|[;&\n]\s*(?:until|while|if)\s"
)


def goes_on(command: str) -> bool:
    """Return whether a shell that runs this command may start further programs after
    one program has failed."""
    return _LONE_PROGRAM.match(command) is None and _TRIES_AGAIN.search(command) is None


def error_before(text: bytes, *, goes_on: bool) -> str:
    """Return the message of a Python error that ended a program of a rank; "" for none.

    Args:
        text: the end of the output.
        goes_on: whether a shell may have run further commands after the error. If not,
            an error counts only if no output follows it, because a program that
            continues has caught its error.
    """
    rows = text.split(b"\n")
    begin = max(
        (row_index for row_index, row in enumerate(rows) if row.startswith(TRACEBACK)),
        default=None,
    )
    if begin is None:
        begin = next(
            (row_index for row_index, row in enumerate(rows) if TRACEBACK in row), None
        )
    if begin is None:
        return ""
    below = [row for row in rows[begin + 1 :] if row.strip() and not row[:1].isspace()]
    if not below or _MESSAGE.match(below[0]) is None:
        return ""
    if len(below) > 1 and not (goes_on and _is_uncaught(rows, begin)):
        return ""
    return _printable_row(below[0])


def _is_uncaught(rows: list[bytes], begin: int) -> bool:
    """Return whether the traceback that begins at row `begin` belongs to an error that
    ended its program. This holds if it starts with the outermost frame, and no line
    above it announces it as a logged error."""
    if begin + 1 >= len(rows) or _OUTERMOST.match(rows[begin + 1]) is None:
        return False
    heads = [
        row_index
        for row_index, row in enumerate(rows[: begin + 1])
        if row.startswith(TRACEBACK)
    ]
    # of errors that were raised of each other, above the first
    for head in reversed(heads):
        above = next((row for row in reversed(rows[:head]) if row.strip()), b"")
        if _CHAINED.match(above) is None:
            return _ANNOUNCES.search(above[:ERROR_CHARACTERS]) is None
    return False


def _printable_row(row: bytes) -> str:
    text = row.decode("utf-8", "replace")[:ERROR_CHARACTERS]
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()
