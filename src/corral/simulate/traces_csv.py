"""Jobs and nodes as CSV with a header; columns may come in any order, and others are ignored."""

import csv
from collections.abc import Iterable, Iterator

from corral.simulate.traces_job import LoggedJob


def jobs_of_csv(head: str, lines: Iterable[str]) -> Iterator[LoggedJob]:
    """Of job_id, vc, submit_s, duration_s, gpus and walltime_s; an empty cell is unknown."""
    columns = head.strip().split(",")
    submit, duration, gpus = (columns.index(name) for name in ("submit_s", "duration_s", "gpus"))
    maybe = ("vc", "walltime_s", "job_id", "user", "name")
    queue, limit, name, user, kind = (_maybe(columns, name) for name in maybe)
    for row in csv.reader(lines):
        yield LoggedJob(
            name=row[name] if name >= 0 else "",
            queue=row[queue] if queue >= 0 else "",
            submitted=float(row[submit]),
            duration=float(row[duration] or -1),
            gpus=float(row[gpus] or 0),
            limit=float(row[limit] or 0) if limit >= 0 else 0.0,
            user=row[user] if user >= 0 else "",
            kind=row[kind] if kind >= 0 else "",
        )


def sizes_of_csv(head: str, lines: Iterable[str]) -> list[int]:
    """GPUs of each node that has any."""
    gpus = head.strip().split(",").index("gpus")
    sizes = [int(float(row[gpus] or 0)) for row in csv.reader(lines)]
    return [size for size in sizes if size > 0]


def _maybe(columns: list[str], name: str) -> int:
    return columns.index(name) if name in columns else -1
