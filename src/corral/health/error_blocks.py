"""First lines of errors in languages other than Python, and the lines that continue
them."""

import re
from collections.abc import Sequence
from typing import Final

from corral.domain.failure_advice import NextStep

CHATTER_CHARACTERS: Final = 300
JOINED_LINES: Final = 3  # of a message whose lines end in a colon

# Each repeat has an end, and each expression is tried at the start of a line only.
_JAVA_NAME: Final = r"(?:[a-z][\w$]{0,40}\.){1,12}[A-Z][\w$.]{0,80}"
_OPENINGS: Final = (
    (NextStep.RUST, re.compile(r"^thread '[^']{0,99}' (?:\(\d{1,9}\) )?panicked at ")),
    (
        NextStep.RECURSION,
        re.compile(r"^thread '[^']{0,99}' (?:\(\d{1,9}\) )?has overflowed its stack"),
    ),
    (NextStep.GO, re.compile(r"^(?:panic: |fatal error: (?!.{0,99}No such file))")),
    (NextStep.CPP, re.compile(r"^terminate called after throwing")),
    (
        NextStep.JAVA,
        re.compile(
            rf"^(?:Exception in thread \"|Caused by: (?={_JAVA_NAME})"
            rf"|{_JAVA_NAME}(?:Exception|Error)\b)"
        ),
    ),
    (
        NextStep.JULIA,
        re.compile(r"^ERROR: (?:LoadError: |\w{1,60}(?:Error|Exception)\b)"),
    ),
    (
        NextStep.R,
        re.compile(
            r"^Error (?:in (?!call to target).{1,200}:|: |\(from )|^Error: (?=.{0,200}\brlang\b)"
        ),
    ),
    (
        NextStep.NODE,
        re.compile(
            r"^(?:Uncaught )?\w{0,40}Error(?: \[\w{1,60}\])?: "
            r"|^\s{1,40}\[cause\]: (?:\w{0,40}(?:Error|Exception)\b)"
        ),
    ),
    (
        NextStep.COMPILER,
        re.compile(
            r"^[^\s:]{1,200}:\d{1,9}:(?:\d{1,9}:)? (?:fatal )?error: |^error\[E\d{4}\]: "
        ),
    ),
    (
        NextStep.LINKER,
        re.compile(
            r"^.{0,200}: (?:undefined reference to |cannot find -l)|^ld: symbol\(s\) not"
        ),
    ),
    (
        NextStep.SANITIZER,
        re.compile(
            r"^==\d{1,9}==\s?(?:ERROR|WARNING): \w{1,40}Sanitizer: |^.{1,200}: runtime error: "
            r"|^WARNING: \w{1,40}Sanitizer: |^==\d{1,9}== (?:Invalid (?:read|write|free)|Use of "
            r"uninit|Conditional jump|Mismatched free|Process terminating with)"
        ),
    ),
    (NextStep.MPI_SLOTS, re.compile(r"^There are not enough slots available")),
    (
        NextStep.MPI_ABORT,
        re.compile(
            r"^MPI_ABORT was invoked on rank \d|^application called MPI_Abort\("
        ),
    ),
    # Perl
    (NextStep.FIRST_LINE, re.compile(r"^.{1,900} at \S{1,200} line \d{1,9}\.$")),
    (
        NextStep.FIRST_LINE,
        re.compile(r"^\S{1,200}:\d{1,9}:in [`'].{1,200}': .{1,200}\(\w+"),
    ),
    (
        # C#, PHP, Elixir, Erlang, Nim, Lua, OCaml and Swift, Fortran, Zig
        NextStep.FIRST_LINE,
        re.compile(
            r"^(?:Unhandled exception[.:]|(?:PHP )?Fatal error: |\*\* \(\w{1,60}\) "
            r"|Error: unhandled exception: |luajit: |lua: |Fortran runtime error: "
            r"|Error using \S"
            r"|\S{1,200}\.swift:\d{1,9}: Fatal error: "
            r"|thread \d{1,9} panic: |forrtl: (?:severe|error) |error: Uncaught )"
        ),
    ),
    (
        NextStep.ABORTED,
        re.compile(r"^F\d{4} [\d:.]{8,20} |^(?:\S{1,200} ){0,3}Check failed: "),
    ),  # glog
    (
        None,
        re.compile(
            r"^(?:[\w.-]{1,30} )?[Ee]rror\b.{0,150}:$"
            r"|^\W{0,6}(?:\w{1,20} )?(?:Fatal error|FATAL(?: IO)? ERROR|Fatal|FATAL|ERROR|Error|"
            r"error|fatal)(?: \w{1,20})?: ?$"
            r"|^Fatal Python error: |^.{0,80}\bhas detected the following error:"
        ),
    ),
)
_ANY_OPENING: Final = re.compile(
    "|".join(opening_pattern.pattern for _, opening_pattern in _OPENINGS)
)
_FRAMES: Final = re.compile(  # what follows a message and does not belong to it
    r"^(?:\s{1,40}at |\tat |goroutine \d|Stacktrace:|stack backtrace:|note: |\[signal |Calls: "
    r"|exit status \d|Execution halted|Node\.js v\d|\s{0,9}#\d{1,3} |\s{0,9}\d{1,5} \| "
    r"|\s{0,40}\| |-{20,}$|Current thread 0x|Thread 0x|in expression starting at)"
)
_CHATTER: Final = re.compile(  # lines of programs that go on: no line of them ends one
    r'"level": ?[123]0\b|^CallStack \(from HasCallStack\)|^\s*error, called at '
    r"|HYDRA_FULL_ERROR|^Error executing job with overrides: |^hint: "
    r"|^wandb: (?!ERROR|CommError)|\bNCCL (?:INFO|TRACE)\b|\d{1,3}%\|.{0,200}\| |\bPMIX ERROR: "
    r"|^.{0,60}\b(?:INFO|DEBUG|TRACE)\b|level\"?[=:] ?\"?(?:info|debug|trace)\b"
    r"|\b(?:re-?try(?:ing)?|retries left|backing off)\b|\battempt \d{1,9} ?(?:of|/) ?\d"
    r"|^[-=*#%~]{8,}$|^= {2,}|^={3,} .{1,200} ={3,}$",  # rules, and the banner of MPICH
    re.IGNORECASE,
)
_GOES_ON: Final = re.compile(
    r"[:,]$|^Error using \S.{0,80}$|panicked at .{1,250}:\d{1,9}:\d{1,9}:$"
)
_VALIDATION: Final = re.compile(r"\b\d{1,9} validation errors? for ")  # of pydantic
_REPORTS: Final = re.compile(r"^\S{1,200}: line \d{1,9}: +\d{1,9} [A-Z][a-z]")
# the second half of a sentence that goes on in the next line
_CONTRAST: Final = re.compile(r"^\s{0,9}(?:[Bb]ut|while|whereas|instead of) ")
_WHAT: Final = re.compile(r"^\s{0,9}what\(\):\s")


def is_report_of_shell(line: str) -> bool:
    """Return whether the line is the report with which a shell says how a process
    ended."""
    return _REPORTS.match(line) is not None


def opening(row: str) -> tuple[NextStep | None] | None:
    """Return a tuple with the advice for the language whose error begins in this row;
    the advice is None if the language has none. Return None if no error begins in the
    row."""
    if _ANY_OPENING.match(row) is None:
        return None
    return next(
        ((step,) for step, opening_pattern in _OPENINGS if opening_pattern.match(row)),
        None,
    )


def is_frame(row: str) -> bool:
    """Return whether the line belongs to a stack trace, or otherwise shows that a
    message ends."""
    return _FRAMES.match(row) is not None


def is_chatter(row: str) -> bool:
    """Return whether the line is chatter, which programs print while they continue:
    retries, progress, log levels below error."""
    return _CHATTER.search(row[:CHATTER_CHARACTERS]) is not None


def is_unfinished(row: str) -> bool:
    """Return whether the sentence in this line continues in the next line."""
    return len(row) < CHATTER_CHARACTERS and _GOES_ON.search(row.rstrip()) is not None


def message(lines: Sequence[str]) -> str:
    """Return the message of an error; for an error of R's rlang, the last message that
    it lists."""
    listed = [line for line in lines[1:] if line.startswith("! ")]
    if listed:
        return listed[-1]
    # the field, and what is wrong with it
    below = 2 if _VALIDATION.search(lines[0]) else 0
    # YAML's file and line
    below = below or int(len(lines) > 1 and lines[1].startswith('in "'))
    return " ".join(lines[: below + 1]) if below else sentence(lines)


def sentence(lines: Sequence[str], first: int = 0) -> str:
    """Return the line with index `first`, joined with the lines that continue it: the
    next line after one that ends in a colon, a line that begins with "But", and a
    `what():` line."""
    text, last_index = lines[first], first
    while last_index + 1 < len(lines) and last_index - first < JOINED_LINES:
        is_what = last_index == first and _WHAT.match(lines[last_index + 1]) is not None
        is_contrast = _CONTRAST.match(lines[last_index + 1]) is not None
        if not (is_what or is_contrast or is_unfinished(lines[last_index])):
            break
        last_index += 1
        text = f"{text} {lines[last_index]}"
    return text
