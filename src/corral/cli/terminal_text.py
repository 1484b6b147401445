"""Cleaning of a job's output for a terminal. Colours and progress bars are kept; other
control sequences are removed, so that a rank cannot write to the clipboard, set titles,
send answers or move the cursor about the screen."""

import re
from typing import Final

# A control sequence (CSI), a string to the terminal (OSC, DCS and the like; one without
# an end ends with its line), another escape, or a control character of its own.
_CONTROL: Final = re.compile(
    r"\x1b\[(?P<parameters>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=[\x1b\n]))"
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_BEGUN: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)?\Z"
)
_COLOURS: Final = re.compile(r"[0-9;:]*", re.ASCII)
_IN_LINE: Final = frozenset("KGCD")  # erase, and move, within the line
_LONGEST: Final = 4096  # characters of what may still become a sequence


class TerminalText:
    """Cleaner for the output of one stream, which arrives in pieces. A control sequence
    may be split between two pieces."""

    def __init__(self) -> None:
        self._begun = ""

    def clean(self, piece: str) -> str:
        text = self._begun + piece
        begun = _BEGUN.search(text)
        self._begun = ""
        if begun is not None and len(begun[0]) <= _LONGEST:
            self._begun = begun[0]
            text = text[: begun.start()]
        return _CONTROL.sub(_filter_escape, text)


def _filter_escape(found: "re.Match[str]") -> str:
    final, parameters = found["final"], found["parameters"]
    if final is None or found["between"]:
        return ""
    is_colour = final == "m" and _COLOURS.fullmatch(parameters)
    is_in_line = final in _IN_LINE and parameters.isdecimal() | (not parameters)
    return found[0] if is_colour or is_in_line else ""
