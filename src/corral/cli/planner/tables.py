"""Reading and writing of tables of rows as CSV files, plain or gzip."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final

from corral.cli.files import read_text, unwritable
from corral.domain.errors import Refusal

HINT: Final = "give a CSV file with a header line, plain or gzipped"


class TableInvalid(Refusal):
    """The error for a file that does not hold a table of rows."""

    code = "table_invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvRows:
    """The columns and rows of a CSV file. Each cell is the text of the file; a missing
    cell is ""."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]


def read_rows(path: Path) -> CsvRows:
    """Read the columns and rows of a CSV file.

    Raises: NotFound, FileUnreadable if the file cannot be read; TableInvalid if it is
    empty, has a column twice, or is no valid CSV.
    """
    text = read_text(path, "a table", hint=HINT)
    try:
        reader = csv.DictReader(StringIO(text, newline=""), strict=True)
        columns = reader.fieldnames = tuple(
            name.strip() for name in reader.fieldnames or ()
        )
        twice = sorted({name for name in columns if columns.count(name) > 1})
        if not columns or twice:
            problem_text = f"has a column {twice[0]!r} twice" if twice else "is empty"
            raise TableInvalid(f"{path} {problem_text}", hint=HINT)
        return CsvRows(
            columns=columns, rows=tuple(_check_row_cells(row, path) for row in reader)
        )
    except csv.Error as error:
        raise TableInvalid(
            f"{path} cannot be read as a table: {error}", hint=HINT
        ) from error


def _check_row_cells(row: Mapping[str | None, Any], path: Path) -> dict[str, str]:
    if None in row:
        raise TableInvalid(
            f"a row of {path} has more cells than the header has columns",
            hint="write one header line, and a cell for each of its columns",
        )
    return {str(name): (value or "").strip() for name, value in row.items()}


def write_rows(
    path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]
) -> None:
    """Write the rows to a CSV file, with a header line.

    Raises: Conflict if the file cannot be written.
    """
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise unwritable(path, error.strerror) from error
