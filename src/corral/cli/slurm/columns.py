"""Tables in Slurm's formats: -o "%.18i %j", -O JobID:10,Name, and sacct's -o
JobID,State%20. No I/O."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from corral.wire.slurm.slurm_errors import SlurmRefusal

Value = Callable[[Any], str]
FIT: Final = -1  # as wide as the longest of the column
_PERCENT: Final = re.compile(r"%(\.?)(#|\d*)([A-Za-z])|%%|[^%]+|%", re.ASCII)
_LONG: Final = re.compile(r"([A-Za-z_-]+)(?::(\.?)(\d+))?(?:[^,]*)", re.ASCII)
_SACCT: Final = re.compile(r"([A-Za-z_]+)(?:%(-?\d+))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column that a format can name: its title, and the function that returns its
    text for a row. `width` is the width in sacct; a negative width aligns to the left.
    If `is_cut` is False, a value may be wider than its column, as times are."""

    title: str
    value: Value
    width: int = 10
    is_cut: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One part of a line of a table: a requested column, or plain text between columns.
    `width` 0: the text keeps its own width."""

    field: Field | None = None
    text: str = ""
    width: int = 0
    right: bool = False
    marks_cut: bool = False

    def shown(self, value: str, fit: int, *, is_title: bool = False) -> str:
        width = fit if self.width == FIT else self.width
        if not width:
            return value
        if len(value) > width and (is_title or self.field is None or self.field.is_cut):
            value = f"{value[: width - 1]}+" if self.marks_cut else value[:width]
        return value.rjust(width) if self.right else value.ljust(width)


def percent(text: str, letters: Mapping[str, Field]) -> list[Cell]:
    """Parse a format of squeue -o and sinfo -o, such as "%.18i %j".

    Raises: SlurmRefusal for an unknown letter.
    """
    cells: list[Cell] = []
    for match in _PERCENT.finditer(text):
        dot, width, letter = match.groups()
        if letter is None:
            cells.append(Cell(text="%" if match.group() == "%%" else match.group()))
            continue
        if letter not in letters:
            raise SlurmRefusal(f"Invalid job format specification: {letter}")
        size = FIT if width == "#" else int(width or 0)
        cells.append(Cell(field=letters[letter], width=size, right=bool(dot)))
    return cells


def long(text: str, names: Mapping[str, Field]) -> list[Cell]:
    """Parse a format of squeue -O and sinfo -O, such as JobID:10,Name; the default
    width is 20.

    Raises: SlurmRefusal for an unknown field.
    """
    cells: list[Cell] = []
    for cell_text in text.split(","):
        match = _LONG.fullmatch(cell_text.strip())
        field = names.get(match.group(1).lower().replace("-", "")) if match else None
        if match is None or field is None:
            raise SlurmRefusal(f"Invalid job format specification: {cell_text}")
        width = int(match.group(3) or 20)
        cells.append(Cell(field=field, width=width, right=bool(match.group(2))))
    return cells


def sacct(text: str, names: Mapping[str, Field]) -> list[Cell]:
    """Parse a format of sacct -o, such as JobID,State%20.

    Raises: SlurmRefusal for an unknown field.
    """
    cells: list[Cell] = []
    for cell_text in filter(None, (part_text.strip() for part_text in text.split(","))):
        match = _SACCT.fullmatch(cell_text)
        field = names.get(match.group(1).lower()) if match else None
        if match is None or field is None:
            raise SlurmRefusal(f'Invalid field requested: "{cell_text}"')
        width = int(match.group(2) or field.width)
        cells.append(
            Cell(field=field, width=abs(width), right=width > 0, marks_cut=True)
        )
    return cells


def table(
    cells: Sequence[Cell], rows: Iterable[Any], *, header: bool = True
) -> list[str]:
    """Return the lines of a table as squeue and sinfo print them."""
    listed = list(rows)
    values = [
        [cell.field.value(row) if cell.field else cell.text for cell in cells]
        for row in listed
    ]
    titles = [cell.field.title if cell.field else cell.text for cell in cells]
    fits = [
        max(
            map(len, (titles[column_index], *(row[column_index] for row in values))),
            default=0,
        )
        for column_index in range(len(cells))
    ]
    header_lines = [_format_row(cells, titles, fits, is_title=True)] if header else []
    return [*header_lines, *(_format_row(cells, value, fits) for value in values)]


def _format_row(
    cells: Sequence[Cell],
    values: Sequence[str],
    fits: Sequence[int],
    *,
    is_title: bool = False,
) -> str:
    return "".join(
        cell.shown(value, fit, is_title=is_title) if cell.field else value
        for cell, value, fit in zip(cells, values, fits, strict=True)
    )


def ruled(
    cells: Sequence[Cell], rows: Iterable[Any], *, header: bool = True
) -> list[str]:
    """Return the lines of a table as sacct prints them, with a space after each column."""
    values = [
        [cell.shown(cell.field.value(row), 0) for cell in cells if cell.field]
        for row in rows
    ]
    if header:
        titles = [cell.shown(cell.field.title, 0) for cell in cells if cell.field]
        values = [titles, ["-" * cell.width for cell in cells], *values]
    return ["".join(f"{cell} " for cell in line) for line in values]


def parsable(
    cells: Sequence[Cell],
    rows: Iterable[Any],
    *,
    header: bool,
    ending: bool,
    divider: str = "|",
) -> list[str]:
    """Return lines whose columns have no fixed width. `ending`: put a divider after the
    last column, too."""
    values = [[cell.field.value(row) for cell in cells if cell.field] for row in rows]
    titles = [cell.field.title for cell in cells if cell.field]
    lines = [titles, *values] if header else values
    return [divider.join(line) + divider * ending for line in lines]
