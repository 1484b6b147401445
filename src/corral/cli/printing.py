"""Printing of command output: tables on a terminal, plain text in a file or pipe, JSON
with --json."""

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from corral.domain.time_point import MOMENT_FORM

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_MOMENT: Final = re.compile(
    r"[12]\d{3}-[01]\d-[0-3]\d [0-2]\d:[0-5]\d:[0-5]\d UTC", re.ASCII
)
WIDEST: Final = 10_000  # columns; as good as no end
LEAST_LAST: Final = 8  # columns that a table's last column has at least
STYLES: Final = {
    "RUNNING": "green",
    "DONE": "dim",
    "FAILED": "red",
    "CANCELLED": "dim",
    "QUEUED": "yellow",
    "STARTING": "cyan",
    "STOPPING": "cyan",
    "RECOVERING": "yellow",
    "SUSPENDED": "magenta",
    "HELD": "yellow",
    "READY": "green",
    "PARTIAL": "yellow",
    "FAILING": "red",
    "STOPPED": "dim",
    "alive": "green",
    "silent": "yellow",
    "dead": "red",
}


def console(*, stderr: bool = False, width: int | None = None) -> "Console":
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            """Raise BrokenPipeError for a closed pipe, as print does for plain text. By
            default, rich would end the process as a failure."""
            raise BrokenPipeError

    return Piped(stderr=stderr, highlight=False, markup=False, emoji=False, width=width)


def say(text: "str | Text" = "", *, stderr: bool = False) -> None:
    """Print one line without wrapping it."""
    console(stderr=stderr).print(text, soft_wrap=True)


def note(text: str) -> None:
    """Print a remark for the user to stderr. It is not part of the answer of the
    command."""
    from rich.text import Text

    say(Text(clean(text), style="dim"), stderr=True)


def print_json(value: "BaseModel | dict[str, Any]") -> None:
    plain = value if isinstance(value, dict) else value.model_dump(mode="json")
    print(json.dumps(plain, indent=2, ensure_ascii=False))


def print_json_line(value: "BaseModel") -> None:
    print(value.model_dump_json(), flush=True)


def clean(text: str) -> str:
    """Make text from the head, a job or another person safe for a terminal.

    Nonprintable characters are replaced. Timestamps from the head are converted to the
    local time zone, like all other times.
    """
    plain = "".join(
        character if character.isprintable() or character in "\n\t" else "\ufffd"
        for character in text
    )
    return _MOMENT.sub(_own_time, plain)


def _own_time(found: "re.Match[str]") -> str:
    try:
        moment = datetime.strptime(found[0], MOMENT_FORM).replace(tzinfo=UTC)
        return (
            clock_text(moment.timestamp())
            if moment.astimezone().utcoffset()
            else found[0]
        )
    except (ValueError, OverflowError):  # a job has written what is no moment
        return found[0]


def state(word: str) -> "Text":
    from rich.text import Text

    return Text(word, style=STYLES.get(word, ""))


def table(*columns: str, right: Sequence[str] = ()) -> "Table":
    """Build a table without lines.

    Columns in `right` hold numbers and are aligned to the right. If the table is too
    wide, only the last column shrinks. Its text wraps, or ends in an ellipsis if its
    cells are `cut`.
    """
    from rich.table import Table

    rich_table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        side: Literal["right", "left"] = "right" if column in right else "left"
        rich_table.add_column(
            column, justify=side, no_wrap=column != columns[-1], overflow="fold"
        )
    return rich_table


def cut(text: str) -> "Text":
    """Return a cell for the last column of a table; its end may be cut with an
    ellipsis."""
    from rich.text import Text

    return Text(clean(text), no_wrap=True, overflow="ellipsis")


def show_table(made: "Table") -> None:
    """Print a table without trailing blanks, so that files and diffs stay clean.

    In a file or a pipe nothing is shortened. If a terminal is too narrow for all
    columns but the last, lines wrap, because a shortened id would be useless.
    """
    output_console = _output_console()
    if (minimum_width := _least_width(made, output_console)) > output_console.width:
        output_console = console(width=minimum_width)
    if output_console.is_terminal:
        output_console.print(made)
        return
    with output_console.capture() as captured:
        output_console.print(made)
    sys.stdout.write(
        "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
    )


def fits(made: "Table") -> bool:
    """Return whether the lines of the table are no wider than the terminal."""
    output_console = _output_console()
    return _least_width(made, output_console) <= output_console.width


def _output_console() -> "Console":
    default_console = console()
    return (
        default_console
        if default_console.is_terminal or "COLUMNS" in os.environ
        else console(width=WIDEST)
    )


def _least_width(made: "Table", out: "Console") -> int:
    """Return the width of the table with the last column at its least width, and all
    others at full width."""
    from rich.cells import cell_len
    from rich.measure import Measurement

    full_width = Measurement.get(
        out, out.options.update(max_width=WIDEST), made
    ).maximum
    last_column = made.columns[-1]
    cells = (str(cell) for cell in (last_column.header, *last_column.cells))
    longest = max(
        cell_len(line) for cell in cells for line in (cell.splitlines() or [""])
    )
    return full_width - max(0, longest - max(LEAST_LAST, last_column.min_width or 0))


def show_pairs(
    pairs: Iterable[tuple[str, "str | Text | None"]], *, stderr: bool = False
) -> None:
    """Print pairs of a name and a value, one pair a line. Pairs with an empty value are
    left out."""
    from rich.text import Text

    shown_pairs = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown_pairs), default=0)
    for name, value in shown_pairs:
        line = Text(f"{name:<{width}}  ", style="bold")
        line.append(Text(clean(value)) if isinstance(value, str) else value or "")
        say(line, stderr=stderr)


def age_text(seconds: float) -> str:
    """Return a duration in short form for a table column. For example: 5s, 12m, 3h20m,
    2d4h."""
    whole_seconds = max(0, int(seconds))
    if whole_seconds < 60:
        return f"{whole_seconds}s"
    minutes, hours, days = (
        whole_seconds // 60,
        whole_seconds // 3600,
        whole_seconds // 86400,
    )
    if hours < 1:
        return f"{minutes}m"
    if days < 2:
        return f"{hours}h{minutes % 60:02d}m"
    return f"{days}d{hours % 24}h"


def clock_text(at: float) -> str:
    """Return a wall-clock time as text in the local time zone, with the name of the
    zone."""
    return (
        datetime.fromtimestamp(at, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    )
