"""Errors in the end of a log: those below Python tracebacks, and those in the formats
of other languages."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from corral.domain.failure_advice import NextStep
from corral.health.error_blocks import is_chatter, is_frame, is_unfinished, opening
from corral.health.pattern_form import LINE_CHARACTERS, shortened
from corral.health.traceback_frames import is_saving

ERROR_LINES: Final = 12  # of one message; more is a listing
NEAR_ROWS: Final = 3  # an abort so soon after a traceback is of the same end

ROW_CHARACTERS: Final = 1000

_TRACEBACK: Final = re.compile(r"^(\S.*)?\bTraceback \(most recent call last\)")
_RAISED: Final = re.compile(r"^[A-Za-z_][\w.]*(?::\s|:?$)")
# as raised, where the lines above it are cut off or in a box
_BARE: Final = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Invalid)(?::\s|:?$)"
)
_FRAME: Final = re.compile(r'^\s*File "([^"]+)", line (\d{1,9}),? in (\S+)')
_INSTALLED: Final = re.compile(  # code that is not the user's own
    r"(?:site|dist)-packages/|/lib/python\d|^<|^python\d|/\.pyenv/|\.pyx$|\.egg/"
)
_LIBRARY: Final = re.compile(
    r"^.{0,500}(?:(?:site|dist)-packages|/lib/python\d[\d.]{0,6})/"
)
_BOXED: Final = re.compile(r"^(\S{1,400}\.pyx?):(\d{1,9}) in (\S{1,200})$")  # of rich
# of an attempt, on its node
_WORK: Final = re.compile(r"^.{0,500}/attempts/[^/]{1,100}/work/")
_CHAINED: Final = re.compile(
    r"^(During handling of the above|The above exception was the direct)"
)
_HANDLED: Final = "During"  # an error was raised while another was handled
# of a worker, below the error that passes it on
_ORIGINAL: Final = "Original Traceback"
# of Java and Node.js: the error above it is its consequence
_CAUSED: Final = re.compile(r"^(?:Caused by: |\s{1,40}\[cause\]: )")
_IGNORED: Final = re.compile(
    r"^(Exception ignored (in|while)|Error in (atexit|sys\.excepthook))"
)
_THREAD: Final = re.compile(r"^Exception in thread [^\"]")
_ENDS: Final = re.compile(
    r"^(\[[EWIFD][\d\]]|[EWIF]\d{4} |frame #|Exception raised from|terminate called"
    r"|\d{4}-\d\d-\d\d[ T]|\W?(DEBUG|INFO|WARN(ING)?|ERROR)\b)"
)
_WRAPPED: Final = re.compile(
    r"ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException|"
    r"See root cause above|exited unexpectedly|process\w{0,9} (has )?(died|failed|terminated)\b|"
    r"SimplifiedTraceback|UnfilteredStackTrace|"
    r"RayTaskError|ActorDiedError|SystemExit|^EOFError$|ExceptionGroup: |"
    r"^(?:[\w.]{1,99}: )?Caught \w{1,99} in "
    r"(?:DataLoader|replica|pin memory|process|worker|thread)\b|"
    r"^MPI_ABORT was invoked|^application called MPI_Abort|_RemoteTraceback"
    r"|^BEGIN failed--compilation aborted|^Error termination\.|^error: called from"
    r"|^Error in \S{1,99} \(line \d{1,9}\)$",
    re.IGNORECASE,
)
# Python's words for a mistake of the program: no machine raises them
_OWN: Final = re.compile(
    r"^(ZeroDivision|Key|Type|Attribute|Index|Name|UnboundLocal|NotImplemented|Lookup|Recursion|"
    r"Assertion|Overflow)Error\b"
)
_PANICKED: Final = re.compile(  # of Rust: newer and older words
    r"^thread '[^']{0,99}' (?:\(\d{1,9}\) )?panicked at (?:'.{0,300}', )?"
    r"([^\s:']{1,200}):(\d{1,9}):"
)
_OF_RUST: Final = re.compile(r"^/rustc/|/\.cargo/registry/|/rustlib/")
_OTHER_PANIC: Final = re.compile(
    r"`Err` value: (?:Any \{|PoisonError)|a scoped thread panicked"
)
_CLEANING: Final = re.compile(
    r":(?:__exit__|_*(?:close|destroy|clean_?up|shutdown|tear_?down|finish|release|unlock)\w*)$"
)
_AT: Final = re.compile(r"^\s{1,40}at ")


@dataclass(frozen=True, slots=True)
class Raised:
    """One error, its message first.

    Args:
        lines: the lines of its message.
        chain: errors of one exception chain share this number.
        frame: file and function in which it was raised, as a Python traceback shows
            them; "" for one that was raised while a file was written.
        place: file and line of the newest frame that is not of an installed library.
        library: file, line and function of the library's frame in which it was raised,
            if that is not `place`.
        is_handled: it was raised while the previous error in its chain was handled.
        step: advice that depends on its language.
        is_of_thread: it ended a Python thread, and not the program.
    """

    lines: tuple[str, ...]
    chain: int
    frame: str = ""
    place: str = ""
    library: str = ""
    step: NextStep | None = None
    is_of_thread: bool = False
    is_handled: bool = False

    @property
    def is_wrapper(self) -> bool:
        """Return whether the error only reports the failure of another process."""
        is_join = self.step == NextStep.RUST and _OTHER_PANIC.search(
            " ".join(self.lines[:2])
        )
        return is_of_wrapper(self.lines[0]) or bool(is_join)

    @property
    def is_own(self) -> bool:
        """Return whether the error is a mistake in the program itself, whatever was
        printed before."""
        return bool(_OWN.match(self.lines[0]))

    @property
    def is_of_cleaning(self) -> bool:
        """Return whether the error was raised during cleanup, while a resource was
        closed."""
        return _CLEANING.search(self.frame) is not None


def without_late_threads(raised: Sequence[Raised]) -> tuple[Raised, ...]:
    """Return the errors without those that threads raised after the error that ended
    the program: a thread that still runs then finds its queue or pipe closed."""
    ending_index = max(
        (
            error_index
            for error_index, raised_error in enumerate(raised)
            if not raised_error.is_of_thread
        ),
        default=None,
    )
    return tuple(raised if ending_index is None else raised[: ending_index + 1])


def is_of_wrapper(line: str) -> bool:
    """Return whether the line only reports that another process failed."""
    return _WRAPPED.search(line) is not None


def outside_tracebacks(rows: Iterable[str]) -> Iterator[str]:
    """Yield the rows outside Python tracebacks: no frames, and no first lines of
    tracebacks."""
    is_inside = False
    for row in rows:
        if "Traceback" in row and _TRACEBACK.match(row) is not None:
            is_inside = True
        elif not (is_inside and row[:1].isspace()) and not _is_frame(row):
            is_inside = False
            yield row


def place_of_dump(rows: Iterable[str]) -> str:
    """Return the place of the first frame that is not of an installed library; "" for
    none.

    Args:
        rows: a call stack as faulthandler prints it, the newest frame first.
    """
    for row in rows:
        if (frame_match := _FRAME.match(row)) is None:
            return ""
        if _INSTALLED.search(frame_match[1]) is None:
            return (
                f"{_WORK.sub('', frame_match[1])[-LINE_CHARACTERS:]}:{frame_match[2]}"
            )
    return ""


def _is_frame(row: str) -> bool:
    return 'File "' in row and _FRAME.match(row) is not None


def raised_in(text: str) -> Iterator[Raised]:
    """Yield the errors in the text, the oldest first. Errors that Python ignored are
    left out."""
    reading = _Reading()
    for row in [*text.split("\n"), ""]:
        yield from reading.take(row)
    if reading.error:
        yield from reading.finish("")


@dataclass(slots=True)
class _Reading:
    """State of the parser between two rows: the current error, and the traceback above
    it."""

    error: list[str] = field(default_factory=list)
    step: NextStep | None = None
    chain: int = 0
    is_inside: bool = False
    is_ignored: bool = False
    frame: str = ""
    place: str = ""
    library: str = ""
    outer_place: str = ""
    is_saving: bool = False
    is_of_thread: bool = False
    is_handled: bool = False
    rows_since_python: int = NEAR_ROWS + 1

    def take(self, row: str) -> Iterator[Raised]:
        row = shortened(row, ROW_CHARACTERS)
        self.rows_since_python += 1
        if self.error and self._is_over(row):
            yield from self.finish(row)
        if _THREAD.match(row):
            self.is_of_thread = True
        elif _IGNORED.match(row):
            self.is_ignored = True
        elif _CHAINED.match(row):
            self.chain -= 1  # the traceback that follows counts it up again
            self.is_handled = row.startswith(_HANDLED)
        elif "Traceback" in row and _TRACEBACK.match(row):
            self.is_inside, self.is_saving = True, False
            self.place = self.outer_place if row.startswith(_ORIGINAL) else ""
            self.chain += 1
        elif (
            'File "' in row
            and (frame_match := _FRAME.match(row)) is not None
            or self.is_inside
            and (frame_match := _BOXED.match(row.rstrip())) is not None
        ):
            self._note_frame(frame_match)
        elif self.error:
            if row.strip():
                self.error.append(_strip_and_shorten(row))
        elif not self._begin_python(row):
            self._begin_other(row)

    def _is_over(self, row: str) -> bool:
        if not row.strip():
            return not is_unfinished(self.error[-1])
        if len(self.error) >= ERROR_LINES or is_frame(row) or is_chatter(row):
            return True
        begins = any(
            pattern.match(row)
            for pattern in (_TRACEBACK, _CHAINED, _IGNORED, _THREAD, _ENDS, _BARE)
        )
        return begins or _CAUSED.match(row) is not None

    def finish(self, row: str) -> Iterator[Raised]:
        is_bare_abort = self.step == NextStep.CPP and len(self.error) == 1
        if not self.is_ignored and not is_bare_abort:
            step = self.step
            if step is None and _AT.match(row):
                step = NextStep.NODE
            raised = Raised(
                tuple(self.error),
                self.chain,
                self._error_frame,
                self.place,
                self.library if self.place else "",
                step,
                self.is_of_thread,
                self.is_handled,
            )
            self.outer_place, self.is_handled = self.place, False
            if self.step is None:
                self.rows_since_python = 0
            yield raised
        self.error, self.step, self.frame, self.place, self.library = (
            [],
            None,
            "",
            "",
            "",
        )
        self.is_ignored = self.is_saving = self.is_of_thread = False

    @property
    def _error_frame(self) -> str:
        return "" if self.is_saving else self.frame

    def _note_frame(self, at: "re.Match[str]") -> None:
        file, line, function = at[1], at[2], at[3]
        self.is_saving = self.is_saving or is_saving(function[:LINE_CHARACTERS])
        self.frame = f"{file[-LINE_CHARACTERS:]}:{function[:LINE_CHARACTERS]}"
        if _INSTALLED.search(file) is None:
            self.place, self.library = (
                f"{_WORK.sub('', file)[-LINE_CHARACTERS:]}:{line}",
                "",
            )
        elif not file.startswith("<"):
            library_path = _LIBRARY.sub("", file)[-LINE_CHARACTERS:]
            self.library = f"{library_path}:{line} in {function[:LINE_CHARACTERS]}"

    def _begin_python(self, row: str) -> bool:
        is_below = (
            self.is_inside and row[:1].strip() != "" and _RAISED.match(row) is not None
        )
        if not is_below and not _BARE.match(row):
            return False
        self.error, self.is_inside = [_strip_and_shorten(row)], False
        return True

    def _begin_other(self, row: str) -> None:
        if (next_steps := opening(row)) is None or self.is_inside:
            return
        (step,) = next_steps
        if step == NextStep.CPP and self.rows_since_python <= NEAR_ROWS:
            return  # the interpreter was on its way out after an error
        self.error, self.step = [_strip_and_shorten(row)], step
        if step == NextStep.RUST and (panic_match := _PANICKED.match(row)) is not None:
            self.place = (
                f"{panic_match[1]}:{panic_match[2]}"
                if _OF_RUST.search(panic_match[1]) is None
                else ""
            )
        self.chain += _CAUSED.match(row) is None


def _strip_and_shorten(line: str) -> str:
    return shortened(line.strip())
