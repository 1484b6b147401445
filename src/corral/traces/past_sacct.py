"""Output of `sacct -P`, read as jobs to import. The first line has the column names;
each further line is a job or step, with fields separated by bars.

Source: https://slurm.schedmd.com/sacct.html, "Job Accounting Fields" and "Job State
Codes".
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from corral.domain.ids import QueueName, UserName
from corral.domain.imported import Imported
from corral.domain.resources import Resources, Shape
from corral.domain.units import MILLIS_PER_GPU
from corral.traces.traces_sacct import clock_seconds, gpus_of

NEEDED: Final = ("JobID", "Submit", "Elapsed", "State")
UNKNOWN: Final = ("", "Unknown", "None", "N/A")
NOT_OVER: Final = (
    "PENDING",
    "RUNNING",
    "SUSPENDED",
    "REQUEUED",
    "RESIZING",
    "COMPLETING",
)
_TYPE: Final = re.compile(r"gres/gpu:([^=,]+)=\d+")
_NODES: Final = re.compile(r"(?:^|,)node=(\d+)")


def rows_of(lines: Iterable[str]) -> Iterator[Imported | str | None]:
    """Yield one value for each row: its job; a text about the fault, with the number of
    the line, if it cannot be read; or None if the job never ran or has not ended. Job
    steps are skipped.

    Raises: ValueError if required columns are missing.
    """
    rows = iter(lines)
    columns = next(rows, "").lstrip("\ufeff").strip().split("|")
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise ValueError(f"the first line lacks the columns {', '.join(missing)}")
    for number, line in enumerate(rows, start=2):
        cells = line.rstrip("\n").split("|")
        if not line.strip():
            continue
        if len(cells) != len(columns):
            yield (
                f"line {number}: the line has {len(cells)} cells, but the first line has "
                f"{len(columns)}"
            )
            continue
        row = dict(zip(columns, cells, strict=True))
        if "." in row["JobID"]:
            continue
        try:
            yield _job_from_row(row)
        except ValueError as error:
            yield f"line {number}: {error}"


def _job_from_row(row: Mapping[str, str]) -> Imported | None:
    """Return the job of a row; None if it never ran or is not over. Raises: ValueError
    if the row is not valid."""
    state = row["State"].partition(" ")[0].rstrip("+")  # "CANCELLED by 1000"
    seconds = clock_seconds(row["Elapsed"])
    if state in NOT_OVER or not seconds or row.get("Start", "") in UNKNOWN[1:]:
        return None
    if not row["JobID"]:
        raise ValueError("JobID is empty")
    submitted = _parse_local_time(row, "Submit")
    started = _parse_local_time(row, "Start") if row.get("Start") else submitted
    end_time = (
        _parse_end_time(row, started)
        if row.get("End", "") not in UNKNOWN
        else started + seconds
    )
    cluster = f"{row['Cluster']}/" if row.get("Cluster") else ""
    tres = row.get("AllocTRES") or row.get("ReqTRES", "")
    return Imported(
        id=f"sacct:{cluster}{row['JobID']}",
        name=row.get("JobName") or row["JobID"],
        user=UserName(row.get("User", "")),
        queue=QueueName(row.get("Partition", "").partition(",")[0]),
        shape=_parse_shape(tres, row.get("NNodes", "")),
        submitted_at=min(submitted, started),  # a requeued one is submitted again
        started_at=started,
        ended_at=end_time,
        seconds=seconds,
        state=state,
        priority=0,
        limit_seconds=clock_seconds(row.get("Timelimit", "")) or None,
    )


def _parse_end_time(row: Mapping[str, str], started: float) -> float:
    """Return the end time, never before the start. A local time in the repeated hour at
    the end of daylight saving time is ambiguous: if the earlier meaning is before the
    start, the later one is used."""
    end_time = _parse_local_time(row, "End")
    if end_time < started:
        end_time = _parse_local_time(row, "End", fold=1)
    if end_time < started:
        raise ValueError(f"End is {row['End']}, before Start")
    return end_time


def _parse_local_time(row: Mapping[str, str], name: str, *, fold: int = 0) -> float:
    """Parse the column `name` as a time in this machine's local time zone, as sacct
    prints it. `fold` 1: the later one of an ambiguous local time."""
    try:
        return datetime.fromisoformat(row[name]).replace(fold=fold).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{name} is {row[name][:60]!r}, not a time") from None


def _parse_shape(tres: str, nodes: str) -> Shape:
    """Return the number of nodes and the GPUs of each, from the columns of sacct. GPUs
    that do not divide evenly over the nodes count as those of one node."""
    gpus, match, kinds = gpus_of(tres), _NODES.search(tres), set(_TYPE.findall(tres))
    node_text = match[1] if match else nodes
    count = int(node_text) if node_text.isdigit() and int(node_text) > 0 else 1
    if gpus % count:
        count = 1
    kind = next(iter(kinds)).lower() if len(kinds) == 1 else None
    return Shape(
        nodes=count,
        resources=Resources(gpu_millis=gpus // count * MILLIS_PER_GPU, gpu_type=kind),
    )
