"""Reading of jobs and nodes from CSV with a header. Columns may be in any order, and
unknown columns are ignored."""

import csv
from collections.abc import Iterable, Iterator
from math import isfinite

from corral.traces.traces_job import LoggedJob

NEEDED = ("submit_s", "duration_s", "gpus")
MOST_GPUS = 1_000  # of one node
KNOWN = ("vc", "walltime_s", "job_id", "user", "name")


def jobs_of_csv(head: str, lines: Iterable[str]) -> Iterator[LoggedJob]:
    """Yield jobs from the columns job_id, user, name, vc, submit_s, duration_s, gpus
    and walltime_s. An empty cell means unknown.

    Raises: ValueError that names the line.
    """
    columns = _parse_header(head, NEEDED)
    known_columns = {
        name: columns.index(name) for name in (*NEEDED, *KNOWN) if name in columns
    }
    reader = csv.reader(lines)
    for row in reader:
        try:
            if row:
                yield _job_from_row(
                    {
                        name: row[column_index].strip()
                        for name, column_index in known_columns.items()
                    }
                )
        except (ValueError, IndexError) as error:
            reason = "too few cells" if isinstance(error, IndexError) else error
            raise ValueError(f"line {reader.line_num + 1}: {reason}") from error


def _job_from_row(row: dict[str, str]) -> LoggedJob:
    return LoggedJob(
        name=row.get("job_id", ""),
        queue=row.get("vc", ""),
        submitted=_parse_number(row, "submit_s"),
        duration=_parse_number(row, "duration_s", unknown=-1.0),
        gpus=_parse_number(row, "gpus", unknown=0.0),
        limit=_parse_number(row, "walltime_s", unknown=0.0),
        user=row.get("user", ""),
        kind=row.get("name", ""),
    )


def _parse_number(
    row: dict[str, str], name: str, *, unknown: float | None = None
) -> float:
    text = row.get(name, "")
    if not text and unknown is not None:
        return unknown
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}, not a number") from None
    if not isfinite(value) or value < 0:
        raise ValueError(f"{name} is {text}: it must be finite and at least 0")
    return value


def nodes_of_csv(head: str, lines: Iterable[str]) -> list[tuple[int, str]]:
    """Return (number of GPUs, virtual cluster `vc`) of each node that has GPUs; `vc` is
    "" if the list does not name it."""
    columns = _parse_header(head, ("gpus",))
    gpus, vc = columns.index("gpus"), columns.index("vc") if "vc" in columns else None
    reader, nodes = csv.reader(lines), []
    for row in reader:
        try:
            owner = "" if vc is None or vc >= len(row) else row[vc].strip()
            nodes.append((_gpus_of_node(row[gpus]), owner))
        except (ValueError, IndexError, OverflowError) as error:
            raise ValueError(f"line {reader.line_num + 1}: {error}") from error
    return [node for node in nodes if node[0] > 0]


def _gpus_of_node(cell: str) -> int:
    """Parse the number of GPUs in a cell; an empty cell means 0.

    Raises: ValueError if no node can have this number.
    """
    count = float(cell or 0)
    if not 0 <= count <= MOST_GPUS or count % 1:
        raise ValueError(
            f"gpus is {cell}: it must be a whole number from 0 to {MOST_GPUS:,}"
        )
    return int(count)


def _parse_header(head: str, needed: Iterable[str]) -> list[str]:
    columns = [name.strip() for name in head.lstrip("\ufeff").strip().split(",")]
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ValueError(f"the header does not contain {', '.join(missing)}")
    return columns
