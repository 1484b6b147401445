"""The end of a rank's log as what it tells: errors that were raised, and other lines.

Programs print one error in many dresses: behind the name of a rank, an actor or a logger, in a box,
over several lines, as a cause within a chain, or once more by the launcher that lost its worker.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from corral.health.patterns import LINE_CHARACTERS

LAST_LINES: Final = 15
FRESH_LINES: Final = 8  # an error that stands so near to the end was the last thing it told
MOST_RAISED: Final = 50  # the newest; who raises more tells nothing by the older ones
ERROR_LINES: Final = 12  # of one message; more is a listing

_COLOURS: Final = re.compile(r"\x1b(\[[0-9;:?]*[A-Za-z]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9])")
_SIDES: Final = "│┃|"  # of a box around a line
_RIMS: Final = frozenset("╭╰┏┗─━╮╯┓┛")
_DRESS: Final = re.compile(
    r"(?:\[(?:rank|default)\d+\]:\s?"  # torch, torchrun
    r"|\((?:[\w.:-]+ )?(?:pid|rank)=\d+[^)]*\)\s?"  # Ray, vLLM
    r"|\d{1,5}: (?=\S)"  # srun --label
    r"|(?:ERROR|CRITICAL|FATAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]+\]\s?"  # vLLM's logger
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?\]?[ :]+(?:- )?"
    r"(?:[\w.]+ - )?(?:\[?(?:ERROR|CRITICAL|FATAL)\]?[ :-]+)?)"
)
_TRACEBACK: Final = re.compile(r"^(\S.*)?\bTraceback \(most recent call last\)")
_RAISED: Final = re.compile(r"^[A-Za-z_][\w.]*(?::\s|:?$)")
_BARE: Final = re.compile(  # as raised, where the lines above it are cut off or in a box
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Invalid)(?::\s|:?$)"
)
_FRAME: Final = re.compile(r'^\s*File "([^"]+)", line \d+, in (\S+)')
_CHAINED: Final = re.compile(r"^(During handling of the above|The above exception was the direct)")
_IGNORED: Final = re.compile(r"^(Exception ignored (in|while)|Error in atexit)")
_ENDS: Final = re.compile(r"^(\[[EWI]\d|frame #|Exception raised from|terminate called)")
_UNJOINED: Final = "terminate called without an active exception"
_WRAPPED: Final = re.compile(
    r"ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException|"
    r"See root cause above|exited unexpectedly|process\w{0,9} (has )?(died|failed|terminated)\b|"
    r"RayTaskError|ActorDiedError|SystemExit|^Caught \w{1,99} in |^EOFError$",
    re.IGNORECASE,
)
_OWN: Final = re.compile(  # Python's words for a mistake of the program: no machine raises them
    r"^(ZeroDivision|Key|Type|Attribute|Index|Name|UnboundLocal|NotImplemented|Lookup)Error\b"
)
_WARNS: Final = re.compile(r"\bWARNING\b|Warning:|^warn(ing)?\b", re.IGNORECASE)
_SHAPED: Final = re.compile(  # a line by which some program told that it failed
    r"\b(error|errors|exception|fatal|panic|panicked|failed|failure|abort(ed|ing)?|cannot|"
    r"could not|unable to|invalid|traceback|refus(ed|ing)|not found|giving up|no such|unbound)\b|"
    r"\w(Error|Exception)\b|\*\*\* |^E\d{4} ",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Raised:
    """One error: its line first. `chain`: those that were raised of each other share a number.
    `frame`: the file and the function in which it was raised, as a traceback tells them."""

    lines: tuple[str, ...]
    chain: int
    frame: str = ""

    @property
    def is_wrapper(self) -> bool:
        """It only tells that another process failed."""
        return bool(_WRAPPED.search(self.lines[0]))

    @property
    def is_own(self) -> bool:
        """The program's own mistake, whatever was printed before."""
        return bool(_OWN.match(self.lines[0]))


@dataclass(frozen=True, slots=True)
class Printed:
    """`raised`: the oldest first. `last`: its last lines, the newest last, and the `warnings` of
    them apart."""

    text: str
    raised: tuple[Raised, ...]
    last: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def ends_raising(self) -> bool:
        """The last thing it told was an error that it raised."""
        newest = [one.lines[0] for one in self.raised if not one.is_wrapper][-1:]
        return any(line in newest for line in self.last[-FRESH_LINES:])

    @property
    def is_left_by_threads(self) -> bool:
        """Whether an error ended the program, and a C++ thread that still ran aborted the process
        while the interpreter shut down."""
        return self.ends_raising and any(_UNJOINED in line for line in self.last[-FRESH_LINES:])

    @property
    def newest(self) -> str:
        """The errors of the newest chain; where none was raised, the last lines."""
        chain = [one for one in self.raised if one.chain == self.raised[-1].chain]
        return "\n".join(line for one in chain for line in one.lines) or "\n".join(
            self.last[-FRESH_LINES:]
        )

    @property
    def complaint(self) -> str:
        """The last line that has the shape of an error, in whatever language; "" for none."""
        return next((line for line in reversed(self.last) if _SHAPED.search(line)), "")


@lru_cache(maxsize=256)  # a failed attempt is looked at again and again until it is over
def printed(tail: str) -> Printed:
    text = _plain(tail)
    lines = [_cut(line) for line in text.split("\n") if line.strip()]
    last = [line for line in lines[-LAST_LINES:] if not _WARNS.search(line)]
    warnings = [line for line in lines[-LAST_LINES:] if _WARNS.search(line)]
    return Printed(text, tuple(_raised(text))[-MOST_RAISED:], tuple(last), tuple(warnings))


def _plain(tail: str) -> str:
    """Without what a terminal would act on, what stands before each line, and our own lines."""
    rows = _COLOURS.sub("", tail).replace("\r", "\n").split("\n")
    return "\n".join(_undressed(_shown(row)) for row in rows if not row.startswith("[corral]"))


def _shown(row: str) -> str:
    return row if row.isprintable() else "".join(c if c.isprintable() else " " for c in row)


def _undressed(row: str) -> str:
    inner, at = row.strip(), 0
    if len(inner) > 1 and inner[0] in _SIDES and inner[-1] in _SIDES:
        return (inner[2:-1] if inner[1:2].isspace() else inner[1:-1]).rstrip()
    if inner and _RIMS.issuperset(inner):
        return ""
    while (dress := _DRESS.match(row, at)) is not None and dress.end() > at:
        at = dress.end()
    return row[at:]


def _cut(line: str) -> str:
    return line.strip()[:LINE_CHARACTERS]


def _raised(text: str) -> Iterator[Raised]:
    """The errors below tracebacks, and lines that can only be such; none that Python ignored."""
    error: list[str] = []
    chain, inside, ignored, frame = 0, False, False, ""
    for row in [*text.split("\n"), ""]:
        if error and (not row.strip() or len(error) >= ERROR_LINES or _begins(row)):
            if not ignored:
                yield Raised(tuple(error), chain, frame)
            error, ignored, frame = [], False, ""
        if _IGNORED.match(row):
            ignored = True
        elif _CHAINED.match(row):
            chain -= 1  # the traceback that follows counts it up again
        elif _TRACEBACK.match(row):
            inside, chain = True, chain + 1
        elif not error and (at := _FRAME.match(row)) is not None:
            frame = f"{at[1][-LINE_CHARACTERS:]}:{at[2][:LINE_CHARACTERS]}"
        elif error:
            error.append(_cut(row))
        elif (inside and row[:1].strip() and _RAISED.match(row)) or _BARE.match(row):
            error, inside = [_cut(row)], False


def _begins(row: str) -> bool:
    """Whether something other begins than a further line of the same message."""
    return any(one.match(row) for one in (_TRACEBACK, _CHAINED, _IGNORED, _ENDS, _BARE))
