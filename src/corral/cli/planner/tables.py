"""Tables of rows in CSV, plain or gzip."""

import csv
import gzip
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from corral.cli.files import unwritable
from corral.domain.errors import NotFound, Refusal


class TableInvalid(Refusal):
    """A file is no table of rows."""

    code = "table_invalid"


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows, each cell as it is written; one that is missing is "".

    Raises: NotFound, TableInvalid.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
        rows = csv.DictReader(StringIO(text, newline=""), strict=True)
        return [_whole(row, path) for row in rows]
    except FileNotFoundError as error:
        raise NotFound("file", str(path)) from error
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        hint = "give a CSV file with a header, plain or .gz"
        raise TableInvalid(f"{path} cannot be read as a table: {error}", hint=hint) from error


def _whole(row: Mapping[str | None, Any], path: Path) -> dict[str, str]:
    if None in row:
        raise TableInvalid(
            f"a row of {path} has more cells than the header names",
            hint="write one header line, and a cell for each of its columns",
        )
    return {str(name): (value or "").strip() for name, value in row.items()}


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Raises: Conflict."""
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise unwritable(path, error.strerror) from error
