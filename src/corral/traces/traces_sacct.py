"""Reading of the output of `sacct -P`: a line of column names, then one job or step a
line, with | between the fields."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from corral.traces.traces_job import LoggedJob

GPUS: Final = re.compile(r"gres/gpu=(\d+)")
TYPED_GPUS: Final = re.compile(r"gres/gpu:[^=,]+=(\d+)")


def jobs_of_sacct(head: str, lines: Iterable[str]) -> Iterator[LoggedJob]:
    """Yield jobs from the columns JobID, Partition, Submit, Elapsed, AllocTRES (else
    ReqTRES) and Timelimit.

    Steps are not replayed. Jobs that never started are not replayed either, because
    they took 0 s and held no GPU.
    """
    columns = head.strip().split("|")
    for needed in ("JobID", "Submit", "Elapsed"):
        if needed not in columns:
            raise ValueError(f"the first line does not contain {needed}")
    for number, line in enumerate(lines, start=2):
        cells = line.rstrip("\n").split("|")
        if len(cells) != len(columns):
            raise ValueError(
                f"line {number}: it has {len(cells)} cells, but the first line has "
                f"{len(columns)}"
            )
        row = dict(zip(columns, cells, strict=True))
        if "." in row["JobID"]:
            continue
        yield LoggedJob(
            name=row["JobID"],
            queue=row.get("Partition", ""),
            submitted=_parse_submit_time(row["Submit"], number),
            duration=clock_seconds(row["Elapsed"]) or -1.0,
            gpus=gpus_of(row.get("AllocTRES") or row.get("ReqTRES", "")),
            limit=clock_seconds(row.get("Timelimit", "")),
            user=row.get("User", ""),
            kind=row.get("JobName", ""),
        )


def _parse_submit_time(text: str, line: int) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ValueError(f"line {line}: Submit is {text!r}, not a time") from None


def gpus_of(tres: str) -> int:
    """Return the number of GPUs in a TRES list of Slurm: the total if it is listed,
    else the sum over the GPU types."""
    total = GPUS.search(tres)
    return (
        int(total[1])
        if total
        else sum(int(number) for number in TYPED_GPUS.findall(tres))
    )


def clock_seconds(text: str) -> float:
    """Parse [days-]hours:minutes:seconds or minutes:seconds; 0 for words such as
    UNLIMITED."""
    days, dash, rest = text.partition("-") if "-" in text else ("0", "", text)
    clock_fields = rest.split(":")
    if len(clock_fields) not in (2, 3) or not all(
        re.fullmatch(r"[\d.]+", field_text) for field_text in (days, *clock_fields)
    ):
        return 0.0
    seconds = 0.0
    for clock_field in clock_fields:
        seconds = seconds * 60 + float(clock_field)
    return float(days) * 86_400 + seconds
