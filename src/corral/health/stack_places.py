"""Places of errors in the call stacks of Java, Node.js, Go, sanitizers and valgrind.

A place is file and line of the newest frame of the program's own code, below the line
that reports the error.
"""

import re
from collections.abc import Iterator
from typing import Final

from corral.health.pattern_form import LINE_CHARACTERS

STACK_ROWS: Final = 60  # below an error that are searched
_ANCHOR_CHARACTERS: Final = 60  # of an error, by which its row is found again
_PARTS: Final = re.compile(r"; (?:it led to|then|before it|earlier in its log): ")
_FRAMES: Final = (
    re.compile(  # Java, Scala, Kotlin
        r"^\s{1,40}at (?:[\w.-]{1,60}/)?(?!(?:java|javax|jdk|sun|com\.sun|scala|kotlin)\.)"
        r"[\w.$<>]{1,200}\((?P<file>[\w$-]{1,80}\.(?:java|scala|kt|groovy)):(?P<line>\d{1,9})\)"
    ),
    re.compile(  # Node.js
        r"^\s{1,40}at (?:async )?(?:[^()]{1,120} \()?(?:file://)?"
        r"(?P<file>/[^():]{1,250}\.[cm]?[jt]sx?):(?P<line>\d{1,9}):\d{1,9}"
    ),
    re.compile(r"^\s{1,8}(?P<file>/\S{1,250}\.go):(?P<line>\d{1,9})(?: \+0x|$)"),  # Go
    re.compile(  # sanitizers
        r"^\s{1,9}#\d{1,3} .{1,250} (?P<file>[^\s:()]{1,200}\.\w{1,5}):(?P<line>\d{1,9})\b"
    ),
    re.compile(  # valgrind
        r"^==\d{1,9}==\s{1,9}(?:at|by) 0x[0-9A-F]{1,16}: .{1,200} "
        r"\((?P<file>[\w./+-]{1,100}\.\w{1,5}):(?P<line>\d{1,9})\)"
    ),
)
_NOT_OWN: Final = re.compile(  # frames of runtimes and of installed libraries
    r"/node_modules/|/go/src/|/go/pkg/mod/|libsanitizer|compiler-rt|/sysdeps/|/csu/|/glibc"
    r"|^/usr/(?:include|lib|src)/|\bvg_replace_|^/rustc/|\.cargo/registry"
)
_OWN_PLACE: Final = re.compile(r"^([^\s:]{1,200}):(\d{1,9}):\d{1,9}: runtime error: ")
# of an attempt, on its node
_WORK: Final = re.compile(r"^.{0,500}/attempts/[^/]{1,100}/work/")


def place_in_stacks(text: str, quote: str) -> str:
    """Return the place that a call stack below a quoted error shows; "" without one.

    Args:
        text: the text of the log.
        quote: the quoted errors, of which the first that has a place counts.
    """
    for part in _PARTS.split(quote):
        if (own_match := _OWN_PLACE.match(part[:LINE_CHARACTERS])) is not None:
            return f"{_WORK.sub('', own_match[1])}:{own_match[2]}"
        begin = text.rfind(part[:_ANCHOR_CHARACTERS]) if part else -1
        if begin >= 0 and (place := next(_places_below(text, begin), "")):
            return place
    return ""


def _places_below(text: str, begin: int) -> Iterator[str]:
    rows = text[begin:].split("\n", STACK_ROWS + 1)[1 : STACK_ROWS + 1]
    for row in rows:
        if not row[:1].isspace() and not row.startswith("=="):
            continue
        for frame_pattern in _FRAMES:
            match = frame_pattern.match(row[:LINE_CHARACTERS])
            if match is not None and _NOT_OWN.search(match["file"]) is None:
                yield f"{_WORK.sub('', match['file'])}:{match['line']}"
